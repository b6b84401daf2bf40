// FastAct in C++, through its header.
#include <ATen/ATen.h>
#include <fastact/fastact.h>

#include <iostream>

int main() {
  const at::Tensor x = at::linspace(-2, 2, 5);
  std::cout << fastact::selu(x) << '\n' << fastact::build_info() << '\n';
}
