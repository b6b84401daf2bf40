// Runs a TorchScript archive that calls FastAct: load_torchscript network.pt
#include <torch/script.h>

#include <iostream>

int main(int argc, char** argv) {
  torch::jit::Module network = torch::jit::load(argv[argc - 1]);
  std::cout << network.forward({at::linspace(-2, 2, 5)}).toTensor() << '\n';
}
