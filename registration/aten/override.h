// The state of the override, and the list of replaced kernels.
#pragma once

#include <torch/library.h>

#include <atomic>
#include <string>

namespace fastact::aten {

namespace detail {
// Overrides that have begun and not ended. Constant-initialised, because kernels may be called
// while libraries are loaded.
inline constinit std::atomic<int> overrides = 0;
}  // namespace detail

inline bool is_overriding() { return detail::overrides.load(std::memory_order_relaxed) > 0; }

// Returns true if this library matches torch and the libfastact.so of this process. Otherwise
// reports why not, and nothing is replaced.
bool is_usable();

// Calls add(library) if this library is usable. Suppresses torch's warning about overridden
// kernels.
void register_quietly(torch::Library& library, void (*add)(torch::Library& library));

// Adds an entry such as "aten::silu.out [CPU]" to the list.
void list_kernel(std::string name, c10::DispatchKey key);

}  // namespace fastact::aten
