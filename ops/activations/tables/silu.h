// Written by scripts/fit_segments.py.
#pragma once

#include "ops/math/segments.h"

// clang-format off
namespace fastact {

// (1 - a / (1 + e^-a)) / (1 + e^-a), to 2^-24.5.
inline constexpr SegmentTable<16> kSiluSlopeSegments = {
    0x1.8d7944p-5f,
    {0x1.474974p+0f, 0x1.dbe38ap+0f, 0x1.4d0f72p+1f, 0x1.8cf3aep+1f,
      0x1.11b3fcp+2f, 0x1.4e6666p+2f, 0x1.b066cp+2f, 0x1.0178f8p+3f,
      0x1.2b773cp+3f, 0x1.929ea2p+3f, 0x1.ef0e68p+3f, 0x1.25a4b6p+4f,
      0x1p+4f, 0x1.5d8c68p-3f, 0x1.e1dda2p-2f, 0x1.7c41f4p-1f},
    {{-0x1.5cd412p-27f, -0x1.0d75ecp-1f, -0x1.53061ep+0f, -0x1.e207bep+0f,
      -0x1.96439ep+1f, -0x1.0b2c46p+2f, -0x1.6f78a4p+2f, -0x1.c2a2c2p+2f,
      -0x1.0b6ab8p+3f, -0x1.729df4p+3f, -0x1.cf0e5cp+3f, -0x1.15a4b6p+4f,
      -0x1.ep+3f, 0x1.f8235ap-2f, 0x1.bfbae8p-2f, 0x1.58ad9ep-2f},
     {-0x1.907afcp-1f, -0x1.01d09ap+0f, -0x1.1d1fep+0f, -0x1.1e7ce8p+0f,
      -0x1.12c156p+0f, -0x1.0a118p+0f, -0x1.031e7ep+0f, -0x1.011298p+0f,
      -0x1.0058cep+0f, -0x1.0004fcp+0f, -0x1.00005ap+0f, -0x1.000006p+0f,
      -0x1p+0f, -0x1.79790ap-4f, -0x1.1e0118p-2f, -0x1.d7962p-2f},
     {-0x1.05b02p-2f, -0x1.0fcd54p-3f, -0x1.879398p-6f, 0x1.203d98p-7f,
      0x1.5f0ad4p-6f, 0x1.caabfcp-7f, 0x1.41af44p-8f, 0x1.d0b1cp-10f,
      0x1.35f112p-11f, 0x1.2288d4p-15f, 0x1.4b63eep-19f, 0x1.6be3dp-18f,
      0.0f, -0x1.275c5p-2f, -0x1.5116a4p-2f, -0x1.533348p-2f},
     {0x1.15850cp-4f, 0x1.0cde32p-4f, 0x1.011e96p-5f, 0x1.bed414p-7f,
      -0x1.e53b1ep-10f, -0x1.635bbep-9f, -0x1.440438p-10f, -0x1.f9fc0ep-12f,
      -0x1.6160acp-13f, -0x1.605098p-17f, -0x1.6bf08p-21f, 0x1.6d1d12p-19f,
      0.0f, -0x1.0d3344p-4f, -0x1.7ca5c6p-6f, 0x1.1ef49ap-6f},
     {0x1.58395p-7f, -0x1.2d5f28p-7f, -0x1.63fd8ap-7f, -0x1.c0c95ap-8f,
      -0x1.ddd642p-11f, 0x1.561d8p-13f, 0x1.b2389p-13f, 0x1.887658p-14f,
      0x1.24e13cp-15f, 0x1.3202c4p-19f, 0x1.c2b8b4p-23f, -0x1.32869p-17f,
      0.0f, 0x1.f0a286p-6f, 0x1.3adae4p-5f, 0x1.1d08ap-5f},
     {-0x1.385f98p-7f, -0x1.c74f4ep-9f, 0x1.669dd2p-10f, 0x1.9fefbcp-10f,
      0x1.ea68cep-12f, 0x1.3486fap-14f, -0x1.5b4b5p-16f, -0x1.d35c0ap-17f,
      -0x1.5d6d02p-18f, -0x1.89aefep-22f, -0x1.8342dap-24f, -0x1.3e48a6p-17f,
      0.0f, 0x1.322e16p-7f, 0x1.320e86p-10f, -0x1.955c2ap-8f},
     {0x1.f0ebe8p-11f, 0x1.c9950cp-10f, 0x1.b6fc2ep-12f, -0x1.fa0d02p-14f,
      -0x1.0af034p-13f, -0x1.7356eep-16f, -0x1.631e56p-21f, 0x1.31d48ap-20f,
      0x1.c6e27ep-22f, 0x1.402134p-24f, -0x1.a976b2p-26f, -0x1.48ba7cp-19f,
      0.0f, -0x1.f2e7c2p-9f, -0x1.4d1b8p-8f, -0x1.4d0cf6p-9f}}};

}  // namespace fastact
// clang-format on
