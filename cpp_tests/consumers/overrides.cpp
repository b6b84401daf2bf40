// Links FastAct::aten: PyTorch's own operators run FastAct's kernels until the override ends.
#include <ATen/ATen.h>
#include <fastact/fastact.h>
#include <fastact/override.h>

#include <iostream>

namespace {

bool is_fastacts() {
  const at::Tensor x = at::linspace(-3, 3, 1001);
  return at::equal(at::mish(x), fastact::mish(x));
}

bool expect(bool condition, const char* what) {
  if (!condition) std::cerr << "overrides: expected " << what << '\n';
  return condition;
}

}  // namespace

int main() {
  bool good = expect(fastact::aten_is_overridden() && is_fastacts(), "an override by linking");
  good &= expect(fastact::overridden_aten_kernels().size() > 70, "a list of kernels");
  fastact::end_aten_override();
  good &= expect(!fastact::aten_is_overridden() && !is_fastacts(), "ATen's kernels at the end");
  {
    const fastact::AtenOverride override;
    good &= expect(is_fastacts(), "an override by an object");
  }
  good &= expect(!is_fastacts(), "ATen's kernels behind the block");
  try {
    fastact::end_aten_override();
    good &= expect(false, "an error");
  } catch (const c10::Error&) {
    good &= expect(!is_fastacts(), "no change after an error");
  }
  return good ? 0 : 1;
}
