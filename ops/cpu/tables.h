// Declarations of the kernel tables that the generated translation units define: one for each
// family and instruction set, and one for each activation with the forms on compute values
// (ops/forms/fused.h).
#pragma once

#include "ops/catalogue.h"
#include "ops/cpu/engine.h"
#include "ops/cpu/rows.h"

namespace fastact::cpu {

#define FASTACT_DECLARE_TABLES(name, Type)          \
  extern const KernelTable<Kernel> name##_baseline; \
  extern const KernelTable<Kernel> name##_avx2;     \
  extern const KernelTable<Kernel> name##_avx512;
FASTACT_FAMILIES(FASTACT_DECLARE_TABLES)
#undef FASTACT_DECLARE_TABLES

#define FASTACT_DECLARE_NUMBER_TABLES(name, Type)                  \
  extern const KernelTable<DenseFunction> name##_numbers_baseline; \
  extern const KernelTable<DenseFunction> name##_numbers_avx2;     \
  extern const KernelTable<DenseFunction> name##_numbers_avx512;
FASTACT_ACTIVATIONS(FASTACT_DECLARE_NUMBER_TABLES)
#undef FASTACT_DECLARE_NUMBER_TABLES

#define FASTACT_DECLARE_ROW_TABLES(name, Type)                \
  extern const KernelTable<RowFunction> name##_rows_baseline; \
  extern const KernelTable<RowFunction> name##_rows_avx2;     \
  extern const KernelTable<RowFunction> name##_rows_avx512;
FASTACT_ROW_FORMS(FASTACT_DECLARE_ROW_TABLES)
#undef FASTACT_DECLARE_ROW_TABLES

#if FASTACT_HAS_AVX2
#define FASTACT_AVX2_TABLE(name) &name##_avx2
#else
#define FASTACT_AVX2_TABLE(name) nullptr
#endif
#if FASTACT_HAS_AVX512
#define FASTACT_AVX512_TABLE(name) &name##_avx512
#else
#define FASTACT_AVX512_TABLE(name) nullptr
#endif

}  // namespace fastact::cpu
