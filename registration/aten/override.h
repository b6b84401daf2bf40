// Whether an override is going on, and what it replaces.
#pragma once

#include <torch/library.h>

#include <atomic>
#include <string>

namespace fastact::aten {

namespace detail {
// Begun and not ended. Constant-initialised, so kernels may be called while libraries are loaded.
inline constinit std::atomic<int> overrides = 0;
}  // namespace detail

inline bool is_overriding() { return detail::overrides.load(std::memory_order_relaxed) > 0; }

// Whether this library fits torch and the libfastact.so of this process; else nothing is replaced,
// and it says why.
bool is_usable();

// Calls add(library) with torch's warning that a kernel is overridden kept quiet, if this library
// is usable.
void register_quietly(torch::Library& library, void (*add)(torch::Library& library));

// "aten::silu.out [CPU]", to be listed.
void list_kernel(std::string name, c10::DispatchKey key);

}  // namespace fastact::aten
