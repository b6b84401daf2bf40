// An application that names no symbol of FastAct: linking FastAct::fastact registers the operators.

#include "operators.h"

int main() { return operators_work() ? 0 : 1; }
