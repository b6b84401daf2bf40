// Runs a package of AOTInductor that calls FastAct: run_package network.pt2
#include <ATen/ATen.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>

#include <cstdio>

int main(int argc, char** argv) {
  torch::inductor::AOTIModelPackageLoader network(argv[argc - 1]);
  const at::Tensor y = network.run({at::linspace(-2, 2, 16).reshape({2, 8})}).at(0).flatten();
  for (int64_t i = 0; i < y.numel(); ++i) std::printf("%a\n", y[i].item<double>());
}
