// Runs a package of AOTInductor that calls FastAct: run_package network.pt2
#include <ATen/ATen.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>

#include <iostream>

int main(int argc, char** argv) {
  torch::inductor::AOTIModelPackageLoader network(argv[argc - 1]);
  std::cout << network.run({at::linspace(-2, 2, 16).reshape({2, 8})}).at(0) << '\n';
}
