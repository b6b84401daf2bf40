// An application that opens the library at run time, twice. The second time must be harmless.

#include <dlfcn.h>

#include <cstdio>

#include "operators.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::printf("usage: opens LIBRARY\n");
    return 1;
  }
  if (is_registered("fastact::selu")) {
    std::printf("the operators are there before the library is opened\n");
    return 1;
  }
  for (int time = 0; time < 2; ++time) {
    if (dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) == nullptr) {
      std::printf("%s\n", dlerror());
      return 1;
    }
    if (!operators_work()) {
      return 1;
    }
  }
  return 0;
}
