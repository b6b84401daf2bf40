// Written by scripts/coefficients/fit_segments.py.
#pragma once

#include "ops/math/segments.h"

// clang-format off
namespace fastact {

// tanh(a), to 2^-26.2.
inline constexpr FullTable<16, 7> kTanhSegments = {
    Reflection::kOdd,
    0x1.233334p+3f,
    {0x1.99999ap+0f, -0x1.67a0fap-4f, 0.0f},
    {0.0f, 0x1.289d2ep-1f, 0x1.52cd7p+0f, 0x1.0378fap+1f,
      0x1.7d2b7cp+1f, 0x1.14a208p+2f, 0x1.821caep+2f, 0x1.daf9bap+2f,
      0x1.daf9bap+2f, 0x1.daf9bap+2f, 0x1.daf9bap+2f, 0x1.daf9bap+2f,
      0x1.daf9bap+2f, 0x1.daf9bap+2f, 0x1.daf9bap+2f, 0x1.daf9bap+2f},
    {{0.0f, 0x1.0b5a66p-1f, 0x1.bc3b22p-1f, 0x1.ee89cap-1f,
      0x1.fd5a96p-1f, 0x1.ffd1dcp-1f, 0x1.fffe7ep-1f, 0x1.ffffe8p-1f,
      0x1.ffffe8p-1f, 0x1.ffffe8p-1f, 0x1.ffffe8p-1f, 0x1.ffffe8p-1f,
      0x1.ffffe8p-1f, 0x1.ffffe8p-1f, 0x1.ffffe8p-1f, 0x1.ffffe8p-1f},
     {0x1p+0f, 0x1.74652cp-1f, 0x1.fa45a6p-3f, 0x1.129fb2p-4f,
      0x1.51d4f2p-7f, 0x1.710fd8p-11f, 0x1.81f15cp-16f, 0x1.8101f8p-20f,
      0x1.8101f8p-20f, 0x1.8101f8p-20f, 0x1.8101f8p-20f, 0x1.8101f8p-20f,
      0x1.8101f8p-20f, 0x1.8101f8p-20f, 0x1.8101f8p-20f, 0x1.8101f8p-20f},
     {-0x1.a107f2p-23f, -0x1.84e8dep-2f, -0x1.b742e4p-3f, -0x1.09421p-4f,
      -0x1.50161ep-7f, -0x1.70ecbep-11f, -0x1.8127c2p-16f, -0x1.82b89ap-20f,
      -0x1.82b89ap-20f, -0x1.82b89ap-20f, -0x1.82b89ap-20f, -0x1.82b89ap-20f,
      -0x1.82b89ap-20f, -0x1.82b89ap-20f, -0x1.82b89ap-20f, -0x1.82b89ap-20f},
     {-0x1.555254p-2f, -0x1.69970ap-5f, 0x1.a8bb84p-4f, 0x1.495b3ep-5f,
      0x1.bb788ep-8f, 0x1.eb639p-12f, 0x1.0a70eap-16f, 0x1.fa25a2p-21f,
      0x1.fa25a2p-21f, 0x1.fa25a2p-21f, 0x1.fa25a2p-21f, 0x1.fa25a2p-21f,
      0x1.fa25a2p-21f, 0x1.fa25a2p-21f, 0x1.fa25a2p-21f, 0x1.fa25a2p-21f},
     {-0x1.d4e416p-13f, 0x1.32686ap-3f, -0x1.2ea758p-6f, -0x1.1a867p-6f,
      -0x1.b22e8p-9f, -0x1.ec00bcp-13f, -0x1.83fa5p-18f, -0x1.e851ap-22f,
      -0x1.e851ap-22f, -0x1.e851ap-22f, -0x1.e851ap-22f, -0x1.e851ap-22f,
      -0x1.e851ap-22f, -0x1.e851ap-22f, -0x1.e851ap-22f, -0x1.e851ap-22f},
     {0x1.151824p-3f, -0x1.8006f2p-5f, -0x1.acb1dp-7f, 0x1.3465dep-8f,
      0x1.4d0cdp-10f, 0x1.8bfc58p-14f, 0x1.9c11c6p-18f, 0x1.b1a86cp-23f,
      0x1.b1a86cp-23f, 0x1.b1a86cp-23f, 0x1.b1a86cp-23f, 0x1.b1a86cp-23f,
      0x1.b1a86cp-23f, 0x1.b1a86cp-23f, 0x1.b1a86cp-23f, 0x1.b1a86cp-23f},
     {-0x1.112988p-7f, -0x1.117c04p-5f, 0x1.a01a86p-7f, -0x1.fb2a3ep-13f,
      -0x1.9a20e4p-12f, -0x1.a695a8p-16f, 0x1.8fff7cp-20f, -0x1.604fd4p-24f,
      -0x1.604fd4p-24f, -0x1.604fd4p-24f, -0x1.604fd4p-24f, -0x1.604fd4p-24f,
      -0x1.604fd4p-24f, -0x1.604fd4p-24f, -0x1.604fd4p-24f, -0x1.604fd4p-24f},
     {-0x1.410378p-5f, 0x1.b924e4p-6f, -0x1.294a9ep-8f, -0x1.6a0a92p-12f,
      0x1.69225ap-14f, 0x1.0780ep-16f, 0x1.476bc6p-20f, 0x1.2404e2p-26f,
      0x1.2404e2p-26f, 0x1.2404e2p-26f, 0x1.2404e2p-26f, 0x1.2404e2p-26f,
      0x1.2404e2p-26f, 0x1.2404e2p-26f, 0x1.2404e2p-26f, 0x1.2404e2p-26f}}};

}  // namespace fastact
// clang-format on
