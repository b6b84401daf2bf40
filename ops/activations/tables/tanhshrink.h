// Written by scripts/fit_segments.py.
#pragma once

#include "ops/math/segments.h"

// clang-format off
namespace fastact {

// (a - tanh(a)) / a^3, to 2^-26.2.
inline constexpr SegmentTable<16> kTanhshrinkSegments = {
    0x1.9a6f4ep-4f,
    {0x1.408bf6p-1f, 0x1.bfb006p-1f, 0x1.2be38ap+0f, 0x1.8eaffep+0f,
      0x1.1270dp+1f, 0x1.53b52ap+1f, 0x1.934732p+1f, 0x1.00ad48p+2f,
      0x1.334616p+2f, 0x1.76d608p+2f, 0x1.d756e2p+2f, 0x1.18e0a8p+3f,
      0.0f, 0x1.6f4064p-4f, 0x1.01137ap-2f, 0x1.abba7p-2f},
    {{0x1.2724ecp-2f, 0x1.059be8p-2f, 0x1.b9b46p-3f, 0x1.5c4acp-3f,
      0x1.e6b2aap-4f, 0x1.6c91d8p-4f, 0x1.1a25cap-4f, 0x1.7e6584p-5f,
      0x1.195fc6p-5f, 0x1.8c15d2p-6f, 0x1.050e9p-6f, 0x1.78dd26p-7f,
      0x1p+0f, 0x1.543d42p-2f, 0x1.4cf132p-2f, 0x1.3f153p-2f},
     {-0x1.fd6c44p-4f, -0x1.1691a2p-3f, -0x1.08a0b2p-3f, -0x1.b1fc3ap-4f,
      -0x1.1fa1cep-4f, -0x1.8a922ap-5f, -0x1.154ac8p-5f, -0x1.3e6f84p-6f,
      -0x1.97437ap-7f, -0x1.e556cep-8f, -0x1.054cd4p-8f, -0x1.41670ep-9f,
      0.0f, -0x1.8532b2p-6f, -0x1.04bdf2p-4f, -0x1.8e0b7cp-4f},
     {-0x1.7042dap-5f, -0x1.1bace4p-8f, 0x1.80c574p-6f, 0x1.0fcf06p-5f,
      0x1.a9cafap-6f, 0x1.1ff0e2p-6f, 0x1.7d991ap-7f, 0x1.7f8c04p-8f,
      0x1.b0518ep-9f, 0x1.b83304p-10f, 0x1.857754p-11f, 0x1.9936ecp-12f,
      0.0f, -0x1.0bc73cp-3f, -0x1.d3a24ep-4f, -0x1.5ec83p-4f},
     {0x1.023914p-4f, 0x1.6aa22ep-5f, 0x1.3a0264p-6f, 0x1.a4d652p-12f,
      -0x1.83a61cp-8f, -0x1.3a0c2ap-8f, -0x1.a57082p-9f, -0x1.868fap-10f,
      -0x1.8c0298p-11f, -0x1.5d187cp-12f, -0x1.ff827p-14f, -0x1.cc9decp-15f,
      0.0f, 0x1.380286p-6f, 0x1.87221p-5f, 0x1.052864p-4f},
     {-0x1.86d67cp-7f, -0x1.72cab8p-6f, -0x1.240fe8p-6f, -0x1.cd5aaap-8f,
      -0x1.2abc44p-14f, 0x1.b5164cp-11f, 0x1.6f0f8ap-11f, 0x1.5b11c6p-12f,
      0x1.47091ap-13f, 0x1.fcb82p-15f, 0x1.378aacp-16f, 0x1.e29d62p-18f,
      0.0f, 0x1.a46ac6p-5f, 0x1.2459ap-5f, 0x1.90832cp-7f},
     {-0x1.12e8bep-6f, -0x1.3fb772p-10f, 0x1.87834p-8f, 0x1.1f7902p-8f,
      0x1.c379a8p-11f, 0x1.95e612p-15f, -0x1.99962p-14f, -0x1.0a96cap-14f,
      -0x1.f14c86p-16f, -0x1.56ce8ap-17f, -0x1.6baf78p-19f, -0x1.e0dd0cp-21f,
      0.0f, -0x1.78ccp-7f, -0x1.abdee6p-6f, -0x1.c47fa6p-6f},
     {0x1.722c66p-7f, 0x1.86f466p-8f, 0x1.0c0502p-12f, -0x1.50b294p-10f,
      -0x1.714c8p-11f, -0x1.dd26b6p-14f, -0x1.5bd884p-21f, 0x1.2abe8p-17f,
      0x1.3f5c66p-18f, 0x1.6013bcp-20f, 0x1.9d7844p-22f, 0x1.13af1ap-23f,
      0.0f, -0x1.116e5ap-6f, -0x1.2f99fcp-6f, 0x1.0f6bfp-8f}}};

}  // namespace fastact
// clang-format on
