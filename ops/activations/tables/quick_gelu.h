// Written by scripts/coefficients/fit_segments.py.
#pragma once

#include "ops/math/segments.h"

// clang-format off
namespace fastact {

// (1 - 1.702 a / (1 + e^(-1.702 a))) / (1 + e^(-1.702 a)), to 2^-24.5.
inline constexpr SegmentTable<16> kQuickGeluSlopeSegments = {
    0x1.5745d2p-4f,
    {0x1.80974ap-1f, 0x1.80974ap-1f, 0x1.8f034cp+0f, 0x1.e69862p+0f,
      0x1.4bf432p+1f, 0x1.86105p+1f, 0x1.019dc4p+2f, 0x1.24660ep+2f,
      0x1.66ebb2p+2f, 0x1.e1b3fcp+2f, 0x1.132818p+3f, 0x1.4b2da6p+3f,
      0x1.4p+3f, 0x1.95b1e6p-4f, 0x1.0d30c6p-2f, 0x1.d8fe18p-2f},
    {{0x1.06e91p-26f, 0x1.06e91p-26f, -0x1.61844cp+0f, -0x1.042c4cp+1f,
      -0x1.a91492p+1f, -0x1.089e88p+2f, -0x1.759a98p+2f, -0x1.b1459ap+2f,
      -0x1.11666cp+3f, -0x1.79ed5ap+3f, -0x1.b450fp+3f, -0x1.09d52ep+4f,
      -0x1.0051ecp+4f, 0x1.f855c4p-2f, 0x1.c62b92p-2f, 0x1.43896p-2f},
     {-0x1.54cf0ep+0f, -0x1.54ceaap+0f, -0x1.e63c74p+0f, -0x1.e648acp+0f,
      -0x1.d11e58p+0f, -0x1.c55256p+0f, -0x1.b8a13ap+0f, -0x1.b6011p+0f,
      -0x1.b436aap+0f, -0x1.b3bd2ap+0f, -0x1.b3b79p+0f, -0x1.b3b65ap+0f,
      -0x1.b3b646p+0f, -0x1.3d0226p-3f, -0x1.cc496p-2f, -0x1.aa5288p-1f},
     {-0x1.7b0784p-1f, -0x1.7b139ep-1f, -0x1.c9a396p-5f, 0x1.422536p-5f,
      0x1.e82fb2p-5f, 0x1.539d26p-5f, 0x1.b19eacp-7f, 0x1.a31596p-8f,
      0x1.7e958ap-10f, 0x1.560524p-14f, 0x1.03c8cep-16f, 0x1.161c8ep-20f,
      0.0f, -0x1.ab2f76p-1f, -0x1.e5a9eep-1f, -0x1.e7555ap-1f},
     {0x1.5610c4p-2f, 0x1.568dfep-2f, 0x1.26fc48p-3f, 0x1.9dd698p-5f,
      -0x1.6e952ep-7f, -0x1.b9f636p-7f, -0x1.76a0cp-8f, -0x1.7fc9fep-9f,
      -0x1.7437acp-11f, -0x1.62bde6p-15f, -0x1.12caa2p-17f, -0x1.61926ep-21f,
      0.0f, -0x1.4d1aa2p-2f, -0x1.0e6dd2p-3f, 0x1.d96adp-4f},
     {0x1.693646p-4f, 0x1.6833aep-4f, -0x1.690786p-4f, -0x1.8fd762p-5f,
      -0x1.5a9952p-8f, 0x1.4466dap-10f, 0x1.b35ab4p-10f, 0x1.ef7e8cp-11f,
      0x1.093442p-12f, 0x1.0a1aeep-16f, 0x1.afa73ep-19f, -0x1.ae83d4p-24f,
      0.0f, 0x1.039b94p-2f, 0x1.48c652p-2f, 0x1.1f10acp-2f},
     {-0x1.16d072p-3f, -0x1.263832p-3f, 0x1.68c268p-6f, 0x1.5ec088p-6f,
      0x1.48bbb4p-8f, 0x1.368e92p-10f, -0x1.435fe4p-12f, -0x1.d4b76cp-13f,
      -0x1.23bcep-14f, -0x1.c5e3cp-19f, -0x1.835748p-21f, 0x1.a5e31ep-23f,
      0.0f, 0x1.140002p-3f, 0x1.a10286p-6f, -0x1.8ddd3ep-4f},
     {0x1.600be8p-6f, 0x1.76687cp-5f, 0x1.9a6b56p-7f, -0x1.5e1814p-9f,
      -0x1.acf7d6p-9f, -0x1.417f9cp-11f, -0x1.bddap-15f, 0x1.4c0138p-15f,
      0x1.a0f4d6p-17f, 0x1.49aa52p-19f, -0x1.9431fep-27f, 0x1.f0bf4ep-22f,
      0.0f, -0x1.71c38p-4f, -0x1.e4193ap-4f, -0x1.4663fp-4f}}};

}  // namespace fastact
// clang-format on
