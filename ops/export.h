// FASTACT_OPS_API marks what registration/ calls. libfastact.so hides it again;
// libfastact_kernels.so, which the libraries for several versions of torch share, exports it.
#pragma once

#define FASTACT_OPS_API __attribute__((visibility("default")))
