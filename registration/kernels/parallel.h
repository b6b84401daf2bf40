// Work on torch's threads, reached through its iterator: at::parallel_for would compile OpenMP into
// this library.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/TensorIterator.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstdint>

namespace fastact {

// Calls task(0) to task(count - 1). Each task processes `elements_each` elements.
template <class Task>
void in_parallel(int64_t count, int64_t elements_each, const Task& task) {
  const at::Tensor positions = at::empty({count}, at::kByte);
  const auto* const first = static_cast<const char*>(positions.const_data_ptr());
  at::TensorIterator iterator = at::TensorIteratorConfig()
                                    .set_check_mem_overlap(false)
                                    .check_all_same_dtype(false)
                                    .resize_outputs(false)
                                    .declare_static_shape({count})
                                    .add_output(positions)
                                    .build();
  const int64_t grain = std::max<int64_t>(1, at::internal::GRAIN_SIZE / elements_each);
  // The iterator has one dimension, so size1 is 1.
  iterator.for_each(
      [&](char** data, const int64_t* strides, int64_t size0, int64_t /*size1*/) {
        for (int64_t i = 0; i < size0; ++i) task(data[0] + i * strides[0] - first);
      },
      grain);
}

}  // namespace fastact
