#include "ops/cpu/result_table.h"

#include <cstring>
#include <memory>

namespace fastact::cpu::inline FASTACT_TARGET {
namespace {

// Compares bits: a parameter may be -0.0 or NaN.
bool are_identical(const Parameters& a, const Parameters& b) {
  for (int i = 0; i < kMaxParameters; ++i)
    if (to_bits(a.values[i]) != to_bits(b.values[i])) return false;
  return true;
}

}  // namespace

template <class Entry>
const Entry* find_entries(ResultTables<Entry>& tables, const Parameters& parameters,
                          void (*fill)(const void* form, Entry* entries), const void* form) {
  for (std::atomic<const ResultTable<Entry>*>& slot : tables) {
    const ResultTable<Entry>* found = slot.load(std::memory_order_acquire);
    if (found == nullptr) {
      auto made = std::make_unique_for_overwrite<ResultTable<Entry>>();
      made->parameters = parameters;
      fill(form, made->entries);
      // If another thread was faster, its table is `found`.
      if (slot.compare_exchange_strong(found, made.get(), std::memory_order_acq_rel))
        found = made.release();
    }
    if (are_identical(found->parameters, parameters)) return found->entries;
  }
  return nullptr;
}

template const uint16_t* find_entries(ResultTables<uint16_t>&, const Parameters&,
                                      void (*)(const void*, uint16_t*), const void*);
template const float* find_entries(ResultTables<float>&, const Parameters&,
                                   void (*)(const void*, float*), const void*);

void look_up(const uint16_t* results, char* to, const char* from, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    uint16_t bits;
    std::memcpy(&bits, from + 2 * i, sizeof(bits));
    std::memcpy(to + 2 * i, &results[bits], sizeof(bits));
  }
}

}  // namespace fastact::cpu::inline FASTACT_TARGET
