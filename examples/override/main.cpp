// Runs a TorchScript archive that contains PyTorch's operators only:
//
//   run_archive network.pt [--override PREFIX/lib/libfastact_aten.so]
//
// Prints the outputs as hexadecimal numbers, which show every bit. LD_PRELOAD of the library gives
// the same outputs as --override.
#include <dlfcn.h>
#include <torch/script.h>

#include <cstdio>
#include <string_view>

int main(int argc, char** argv) {
  const bool overrides = argc == 4 && std::string_view(argv[2]) == "--override";
  if (argc != 2 && !overrides) {
    std::fprintf(stderr, "usage: run_archive ARCHIVE [--override LIBRARY]\n");
    return 1;
  }
  if (overrides && dlopen(argv[3], RTLD_NOW) == nullptr) {
    std::fprintf(stderr, "run_archive: %s\n", dlerror());
    return 1;
  }
  torch::jit::Module network = torch::jit::load(argv[1]);
  const at::Tensor y =
      network.forward({at::linspace(-4, 4, 4096).reshape({64, 64})}).toTensor().flatten();
  for (int64_t i = 0; i < y.numel(); ++i) std::printf("%a\n", y[i].item<double>());
}
