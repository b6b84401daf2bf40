// Written by scripts/coefficients/fit_segments.py.
#pragma once

#include "ops/math/segments.h"

// clang-format off
namespace fastact {

// a Phi(-a) e^(a^2 / 2), to 2^-28.4.
inline constexpr SegmentTable<16> kGeluSegments = {
    0x1.00deeap-4f,
    {0x1.f5041p-1f, 0x1.856542p+0f, 0x1.f0644p+0f, 0x1.3b7ca6p+1f,
      0x1.bd864cp+1f, 0x1.1a8f16p+2f, 0x1.4bacp+2f, 0x1.942536p+2f,
      0x1.e13e3ep+2f, 0x1.2c2dd2p+3f, 0x1.6a0c6ep+3f, 0x1.ba2d0ep+3f,
      0.0f, 0.0f, 0x1.874f1cp-2f, 0x1.48f60ap-1f},
    {{0x1.09177p-2f, 0x1.3d94bep-2f, 0x1.55888p-2f, 0x1.68cedp-2f,
      0x1.7ce2e8p-2f, 0x1.862a1cp-2f, 0x1.8ac05cp-2f, 0x1.8ef5d8p-2f,
      0x1.91a51ap-2f, 0x1.94063cp-2f, 0x1.9565c6p-2f, 0x1.9668fep-2f,
      0.0f, 0.0f, 0x1.27a856p-3f, 0x1.a4fe3cp-3f},
     {0x1.051c26p-3f, 0x1.19ddd8p-4f, 0x1.7205acp-5f, 0x1.ccc1a6p-6f,
      0x1.a8375ep-7f, 0x1.d63952p-8f, 0x1.3560b4p-8f, 0x1.6a6a2cp-9f,
      0x1.bdb7f2p-10f, 0x1.dae464p-11f, 0x1.140afp-11f, 0x1.3383bcp-12f,
      0.0f, 0x1p-1f, 0x1.1f3a66p-2f, 0x1.90c874p-3f},
     {-0x1.3e316p-4f, -0x1.2abf28p-5f, -0x1.62413ap-6f, -0x1.870b2ap-7f,
      -0x1.23cc84p-8f, -0x1.1113dcp-9f, -0x1.3d5818p-10f, -0x1.3bd48cp-11f,
      -0x1.4dcbfep-12f, -0x1.232f08p-13f, -0x1.1c36a6p-14f, -0x1.05b58ep-15f,
      0.0f, -0x1.988446p-2f, -0x1.9b9d98p-3f, -0x1.0b49eap-3f},
     {0x1.3a9facp-5f, 0x1.04c7f2p-6f, 0x1.1a1aeep-7f, 0x1.16f5ccp-8f,
      0x1.56c7aep-10f, 0x1.116c3ep-11f, 0x1.1a391p-12f, 0x1.e03adcp-14f,
      0x1.b61ad8p-15f, 0x1.3a5624p-16f, 0x1.024898p-17f, 0x1.8a065cp-19f,
      0.0f, 0x1.fffa28p-3f, 0x1.d5963ep-4f, 0x1.1e4c4ap-4f},
     {-0x1.0e614cp-6f, -0x1.8fcbbap-8f, -0x1.8de0f6p-9f, -0x1.633df4p-10f,
      -0x1.6b8426p-12f, -0x1.f1f27p-14f, -0x1.cbdb84p-15f, -0x1.503dd2p-16f,
      -0x1.0ab622p-17f, -0x1.3b98c4p-19f, -0x1.b6bdbep-21f, -0x1.149b5cp-22f,
      0.0f, -0x1.0febcap-3f, -0x1.cb106ep-5f, -0x1.085daap-5f},
     {0x1.a6ac54p-8f, 0x1.18a718p-9f, 0x1.006c7cp-10f, 0x1.a24134p-12f,
      0x1.50f2d4p-14f, 0x1.a31b98p-16f, 0x1.6318a2p-17f, 0x1.bf4acep-19f,
      0x1.37274cp-20f, 0x1.2b29a6p-22f, 0x1.6a565p-24f, 0x1.768a66p-26f,
      0.0f, 0x1.f213eep-5f, 0x1.91da12p-6f, 0x1.b35a9cp-7f},
     {-0x1.22120ep-9f, -0x1.7d6242p-11f, -0x1.1400bcp-12f, -0x1.bb2a7cp-14f,
      -0x1.f05624p-16f, -0x1.bf66fap-18f, -0x1.ef65c6p-20f, -0x1.2aff9cp-21f,
      -0x1.230a64p-23f, -0x1.b7520ep-26f, -0x1.f2590ep-28f, -0x1.04a47p-29f,
      0.0f, -0x1.48a9a8p-6f, -0x1.3ff4c6p-7f, -0x1.6c3c98p-8f}}};

// (Phi(-a) - a phi(a)) e^(a^2 / 2), to 2^-27.7.
inline constexpr SegmentTable<16> kGeluSlopeSegments = {
    0x1.00deeap-4f,
    {0x1.80ead2p-1f, 0x1.908ebcp+0f, 0x1.e32818p+0f, 0x1.33fe0ep+1f,
      0x1.971868p+1f, 0x1.034732p+2f, 0x1.54d736p+2f, 0x1.825da8p+2f,
      0x1.f03b6ep+2f, 0x1.3aedc6p+3f, 0x1.75218p+3f, 0x1.c4c7aap+3f,
      0.0f, 0x1.6cd6ccp-4f, 0x1.676aep-2f, 0x1.80ead2p-1f},
    {{-0x1.dc87p-28f, -0x1.b24f3p-2f, -0x1.27ac16p-1f, -0x1.a0de7ep-1f,
      -0x1.273938p+0f, -0x1.85dae8p+0f, -0x1.06aba4p+1f, -0x1.2c082ap+1f,
      -0x1.85745ep+1f, -0x1.f16abep+1f, -0x1.278a9cp+2f, -0x1.677874p+2f,
      0.0f, 0x1.b929f2p-2f, 0x1.f770dp-3f, -0x1.dc87p-28f},
     {-0x1.25126cp-1f, -0x1.f07332p-2f, -0x1.ddf3c6p-2f, -0x1.c9f46ep-2f,
      -0x1.b893ecp-2f, -0x1.adda2ep-2f, -0x1.a59d5p-2f, -0x1.a2e908p-2f,
      -0x1.9eff92p-2f, -0x1.9c9c4p-2f, -0x1.9b752p-2f, -0x1.9a870ep-2f,
      0.0f, -0x1.833fa8p-1f, -0x1.532d46p-1f, -0x1.25126cp-1f},
     {0x1.5b2934p-4f, 0x1.0d3456p-5f, 0x1.84ea7ap-6f, 0x1.e4635p-7f,
      0x1.06612cp-7f, 0x1.24645ap-8f, 0x1.1fb14p-9f, 0x1.9a005p-10f,
      0x1.98ca1p-11f, 0x1.9d979p-12f, 0x1.f9a3d4p-13f, 0x1.1ed89ap-13f,
      0.0f, 0x1.bcf3dcp-3f, 0x1.2c6572p-3f, 0x1.5b299p-4f},
     {-0x1.2b9ce8p-5f, -0x1.784df2p-7f, -0x1.f6947p-8f, -0x1.15bf1ep-8f,
      -0x1.fe7b8ep-10f, -0x1.e2869p-11f, -0x1.810e9cp-12f, -0x1.eed9fap-13f,
      -0x1.8cfcf8p-14f, -0x1.43252ap-15f, -0x1.51c32cp-16f, -0x1.3cd52ap-17f,
      0.0f, -0x1.cd91f4p-4f, -0x1.217ac8p-4f, -0x1.2ba844p-5f},
     {0x1.d2a2e2p-7f, 0x1.e7f582p-9f, 0x1.2fab1ap-9f, 0x1.2d298ap-10f,
      0x1.db4042p-12f, 0x1.813438p-13f, 0x1.f580a6p-15f, 0x1.23ea1cp-15f,
      0x1.7b8bcp-17f, 0x1.f7184ep-19f, 0x1.bf440ap-20f, 0x1.5028fp-21f,
      0.0f, 0x1.a89506p-5f, 0x1.f2f30ap-6f, 0x1.d6156ap-7f},
     {-0x1.3e3622p-8f, -0x1.2bdafp-10f, -0x1.5d82fap-11f, -0x1.1866d4p-12f,
      -0x1.b33462p-14f, -0x1.23112p-15f, -0x1.3323f6p-17f, -0x1.474e4p-18f,
      -0x1.796d3p-20f, -0x1.ab923ap-22f, -0x1.f552d6p-24f, -0x1.fde746p-24f,
      0.0f, -0x1.5ce1b8p-6f, -0x1.8fb6ap-7f, -0x1.452694p-8f},
     {0x1.24c178p-10f, 0x1.63f60ep-12f, 0x1.65c2fep-13f, 0x1.0679bep-22f,
      0x1.6f3b84p-16f, 0x1.3e5b56p-18f, 0x1.35e10ep-19f, 0x1.2d811cp-21f,
      0x1.7f150ap-23f, 0x1.2906aap-26f, 0x1.1cf6bap-27f, -0x1.c3dae4p-26f,
      0.0f, 0x1.88fda4p-8f, 0x1.5e9218p-8f, 0x1.2faeeap-9f}}};

}  // namespace fastact
// clang-format on
