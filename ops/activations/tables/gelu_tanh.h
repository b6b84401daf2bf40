// Written by scripts/coefficients/fit_segments.py.
#pragma once

#include "ops/math/segments.h"

// clang-format off
namespace fastact {

// (1 - a w' / (1 + e^-w)) / (1 + e^-w), to 2^-26.9.
inline constexpr SegmentTable<16> kGeluTanhSlopeSegments = {
    0x1.542e2p-4f,
    {0x1.8142ap-1f, 0x1.341ef6p+0f, 0x1.773002p+0f, 0x1.ebbdc6p+0f,
      0x1.423564p+1f, 0x1.b1581p+1f, 0x1.e7a5cp+1f, 0x1.2bb146p+2f,
      0x1.6a6ca6p+2f, 0x1.c8764cp+2f, 0x1.234396p+3f, 0x1.50b7b2p+3f,
      0.0f, 0x1.d6116cp-5f, 0x1.3bb4e2p-2f, 0x1.e1a08ap-2f},
    {{-0x1.1f3192p-26f, -0x1.d37716p-1f, -0x1.ab2438p+0f, -0x1.ae65acp+1f,
      -0x1.9689dcp+2f, -0x1.9671fep+3f, -0x1.0ea28cp+4f, -0x1.c73e46p+4f,
      -0x1.774898p+5f, -0x1.602e4ap+6f, -0x1.5de34p+7f, -0x1.093052p+8f,
      0.0f, 0x1.fdc80ap-2f, 0x1.b72b36p-2f, 0x1.4a5732p-2f},
     {-0x1.79651cp+0f, -0x1.4946ap+1f, -0x1.98915ep+1f, -0x1.103c5p+2f,
      -0x1.7543b8p+2f, -0x1.1f685ap+3f, -0x1.5d88d6p+3f, -0x1.f5af7ep+3f,
      -0x1.63094cp+4f, -0x1.121b16p+5f, -0x1.b664bap+5f, -0x1.22cd2p+6f,
      0.0f, -0x1.3a51ep-4f, -0x1.f9fc2p-2f, -0x1.a6201ap-1f},
     {-0x1.342ea8p+0f, -0x1.339eb6p+0f, -0x1.2a41cep+0f, -0x1.31fbeap+0f,
      -0x1.7e6222p+0f, -0x1.119ff8p+1f, -0x1.37b264p+1f, -0x1.80e0ccp+1f,
      -0x1.d17e3p+1f, -0x1.25230cp+2f, -0x1.761882p+2f, -0x1.b079c4p+2f,
      0.0f, -0x1.66aa9cp-1f, -0x1.e84188p-1f, -0x1.143a24p+0f},
     {-0x1.3cfed8p-4f, 0x1.952256p-5f, 0x1.12924cp-5f, -0x1.6879aap-4f,
      -0x1.d1817ep-3f, -0x1.efe9bap-3f, -0x1.cef9dap-3f, -0x1.b78fccp-3f,
      -0x1.b66b0ep-3f, -0x1.b65d0ap-3f, -0x1.b661p-3f, -0x1.b662f6p-3f,
      0.0f, -0x1.7840fep-2f, -0x1.2d4132p-2f, -0x1.c11ecap-3f},
     {0x1.dc3686p-4f, 0x1.f90a3ap-7f, -0x1.59c548p-5f, -0x1.3943e8p-4f,
      -0x1.0e4264p-5f, 0x1.507b9ep-7f, 0x1.edda78p-8f, 0x1.4a7fbcp-11f,
      0x1.14fa8cp-18f, -0x1.335e56p-17f, 0x1.9a1bd8p-17f, 0x1.476aa8p-17f,
      0.0f, 0x1.3c6736p-5f, 0x1.a544f4p-4f, 0x1.005e4ep-3f},
     {-0x1.b28b22p-6f, -0x1.a2adc2p-5f, -0x1.1a5f7ep-5f, 0x1.486942p-9f,
      0x1.2cfaa6p-6f, 0x1.ffb552p-12f, -0x1.543dc4p-9f, -0x1.ef720ep-12f,
      0x1.a0be7cp-19f, -0x1.78006ap-15f, -0x1.20f992p-16f, -0x1.fe5ff2p-17f,
      0.0f, 0x1.edda54p-5f, 0x1.3a85dcp-5f, 0x1.10ad7p-6f},
     {-0x1.5ca2ccp-6f, -0x1.8eaf74p-14f, 0x1.b4634ap-7f, 0x1.32798ep-7f,
      -0x1.614754p-15f, -0x1.ba50ap-9f, 0x1.666edap-12f, 0x1.1b7b0ep-12f,
      -0x1.a7ac7ep-20f, 0x1.2e5d3cp-15f, -0x1.1e33dap-16f, -0x1.17bff6p-16f,
      0.0f, -0x1.3f0de4p-7f, -0x1.5fcf8p-6f, -0x1.d13b88p-6f}}};

}  // namespace fastact
// clang-format on
