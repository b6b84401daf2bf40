// Written by scripts/coefficients/fit_segments.py.
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

// tanh(a), whose square is f'(a), to 2^-28.1.
inline constexpr SegmentTable<16> kTanhshrinkSlopeSegments = {
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
