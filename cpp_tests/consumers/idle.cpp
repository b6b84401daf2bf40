// An application that uses neither FastAct nor Torch by name. The loader must still find the linked
// libraries.

int main() { return 0; }
