// The dispatch keys of composed operators (composites/composites.h). Functionalize and
// FuncTorchBatched decompose a call as well: keys/functionalize.cpp, keys/functorch_batched.cpp.
#include "registration/composites/composites.h"
#include "registration/operators/implement.h"

namespace fastact {
namespace {

// Operators with kernels, for tensors without one.
struct Composed {
  // DTensor's rules replace the composition of a row operator.
  static bool serves(const Operator& op) { return op.composition != nullptr && !op.has_rows; }

  static void several(c10::DispatchKeySet /*keys*/, const Operator& op, TensorPointers tensors,
                      const CallParameters& parameters, at::Tensor* results) {
    op.composition(op, tensors, parameters, results);
  }
};

}  // namespace

TORCH_LIBRARY_IMPL(fastact, CompositeImplicitAutograd, library) {
  for (const Composites& composites : all_composites()) composites.implement(library);
}

// Not CompositeImplicitAutograd: a FakeTensor would then have the strides of the composition.
TORCH_LIBRARY_IMPL(fastact, CompositeExplicitAutograd, library) {
  implement<Composed>(library, c10::DispatchKey::CompositeExplicitAutograd);
}

// Makes vmap's `randomness` apply to the seed. Every call under vmap reaches this key, even if self
// is not batched.
TORCH_LIBRARY_IMPL(fastact, FuncTorchVmapMode, library) {
  for (const Composites& composites : all_composites())
    if (composites.draws_random_numbers) composites.implement(library);
}

}  // namespace fastact
