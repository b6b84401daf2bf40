// An application that uses neither FastAct nor Torch by name: what it links must be found at start.

int main() { return 0; }
