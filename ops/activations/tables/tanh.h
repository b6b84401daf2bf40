// Written by scripts/fit_segments.py.
#pragma once

#include "ops/math/segments.h"

// clang-format off
namespace fastact {

// tanh(a), to 2^-28.1.
inline constexpr SegmentTable<16> kTanhSegments = {
    0x1.9a6f4ep-4f,
    {0x1.45895ap-1f, 0x1.ecfec8p-1f, 0x1.501d7p+0f, 0x1.88b31cp+0f,
      0x1.f2fbaap+0f, 0x1.4c529ep+1f, 0x1.b634f8p+1f, 0x1.f9ab6p+1f,
      0x1.29fe2p+2f, 0x1.7debfp+2f, 0x1.cfdacap+2f, 0x1.0a2856p+3f,
      0.0f, 0.0f, 0x1.f0fcb4p-3f, 0x1.aeb8ep-2f},
    {{0x1.1fc402p-1f, 0x1.7db9f4p-1f, 0x1.bae3dep-1f, 0x1.d27c3p-1f,
      0x1.eba656p-1f, 0x1.fa5718p-1f, 0x1.fee9bap-1f, 0x1.ff9ef4p-1f,
      0x1.ffe854p-1f, 0x1.fffe48p-1f, 0x1.ffffdep-1f, 0x1.fffffcp-1f,
      0x1p+0f, 0.0f, 0x1.e774bap-3f, 0x1.96ff64p-2f},
     {0x1.5e4378p-1f, 0x1.c6ccf8p-2f, 0x1.01c85ap-2f, 0x1.5bef4ap-3f,
      0x1.3f2218p-4f, 0x1.68397ap-6f, 0x1.15fa48p-8f, 0x1.840b3ep-10f,
      0x1.7ab5fep-12f, 0x1.b801acp-16f, 0x1.1002e2p-19f, 0x1.002d12p-22f,
      0.0f, 0x1p+0f, 0x1.e2fe96p-1f, 0x1.af1e1ep-1f},
     {-0x1.89b9e8p-2f, -0x1.5314bap-2f, -0x1.bdf95ap-3f, -0x1.3d013ap-3f,
      -0x1.327372p-4f, -0x1.643dbp-6f, -0x1.1562ecp-8f, -0x1.83c29ep-10f,
      -0x1.7a8bacp-12f, -0x1.b7d9c6p-16f, -0x1.0ff64ap-19f, -0x1.04012ep-22f,
      0.0f, -0x1.ee1548p-24f, -0x1.cbd73cp-3f, -0x1.56b3eap-2f},
     {-0x1.8764f8p-7f, 0x1.94d2b8p-4f, 0x1.abd7a2p-4f, 0x1.59b1c4p-4f,
      0x1.77c964p-5f, 0x1.d07314p-7f, 0x1.705e8ep-9f, 0x1.021b14p-10f,
      0x1.f8d792p-13f, 0x1.24ff78p-16f, 0x1.6a1d84p-20f, 0x1.5c9a02p-23f,
      0.0f, -0x1.555294p-2f, -0x1.0b489ep-2f, -0x1.2e66d2p-3f},
     {0x1.145bb6p-3f, 0x1.2cd1bap-5f, -0x1.2352dp-6f, -0x1.9e42bp-6f,
      -0x1.38a5a4p-6f, -0x1.bbeaeep-8f, -0x1.6d0652p-10f, -0x1.00fcc4p-11f,
      -0x1.fdcb64p-14f, -0x1.280c0ep-17f, -0x1.6cc45p-21f, -0x1.01380ap-24f,
      0.0f, -0x1.4784a8p-12f, 0x1.1859dcp-3f, 0x1.5ca476p-3f},
     {-0x1.c6d26cp-5f, -0x1.9cd4dp-5f, -0x1.c26ec6p-7f, -0x1.701c0ep-10f,
      0x1.366df8p-8f, 0x1.4396d6p-9f, 0x1.16067p-11f, 0x1.9d4cf8p-13f,
      0x1.978c88p-15f, 0x1.e8cdd2p-19f, 0x1.30d49p-22f, -0x1.3bb2bap-28f,
      0.0f, 0x1.1962a4p-3f, 0x1.3bc228p-4f, -0x1.60f464p-14f},
     {-0x1.8faf8p-6f, 0x1.0d166ap-6f, 0x1.e68abcp-7f, 0x1.7003b2p-8f,
      -0x1.7c777ap-13f, -0x1.43f74ep-11f, -0x1.e9b412p-13f, -0x1.2d2bc4p-14f,
      -0x1.92084cp-17f, -0x1.09bb54p-20f, -0x1.60d9p-24f, 0x1.202fccp-27f,
      0.0f, -0x1.8b0256p-6f, -0x1.b1bf2ap-5f, -0x1.1899aap-4f}}};

}  // namespace fastact
// clang-format on
