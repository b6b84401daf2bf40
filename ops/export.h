// FASTACT_OPS_API marks the functions that registration/ calls. libfastact.so hides them again.
// libfastact_kernels.so, which the libraries for several versions of torch share, exports them.
#pragma once

#define FASTACT_OPS_API __attribute__((visibility("default")))
