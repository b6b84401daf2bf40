// Written by scripts/coefficients/fit_segments.py.
#pragma once

#include "ops/math/segments.h"

// clang-format off
namespace fastact {

// log(1 + e^-a) e^a, to 2^-26.1.
inline constexpr SegmentTable<16> kSoftplusSegments = {
    0x1.a38e38p-5f,
    {0x1.4edc6cp+0f, 0x1.bfb7ccp+0f, 0x1.40cd7ep+1f, 0x1.9891cap+1f,
      0x1.0b989p+2f, 0x1.44ce3p+2f, 0x1.a1f112p+2f, 0x1.d86aeap+2f,
      0x1.297846p+3f, 0x1.6dcf0ep+3f, 0x1.caa6f6p+3f, 0x1.16304p+4f,
      0.0f, 0x1.147ae2p-3f, 0x1.04aa16p-1f, 0x1.ad5d34p-1f},
    {{0x1.c52ebep-1f, 0x1.d809b6p-1f, 0x1.ec302p-1f, 0x1.f5c296p-1f,
      0x1.fc20acp-1f, 0x1.fe681p-1f, 0x1.ffa082p-1f, 0x1.ffd736p-1f,
      0x1.fff9fcp-1f, 0x1.ffff4ap-1f, 0x1.fffff6p-1f, 0x1p+0f,
      0x1p+0f, 0x1.6ff70ap-1f, 0x1.90ee3ep-1f, 0x1.a98472p-1f},
     {0x1.9124bcp-4f, 0x1.1f4632p-4f, 0x1.2cd89ep-5f, 0x1.3eff2ap-6f,
      0x1.eaadacp-8f, 0x1.963f18p-9f, 0x1.7d990ap-11f, 0x1.462d6p-12f,
      0x1.80fd9ep-15f, 0x1.6bfb96p-18f, 0x1.40055ep-22f, 0x1.ef885p-27f,
      0.0f, 0x1.7ad842p-3f, 0x1.448bdp-3f, 0x1.10374cp-3f},
     {-0x1.1d08acp-5f, -0x1.cb80fp-6f, -0x1.0e64eep-6f, -0x1.2e270ap-7f,
      -0x1.e0d17ep-9f, -0x1.92e0cep-10f, -0x1.7cdc02p-12f, -0x1.45ea7ep-13f,
      -0x1.80dc54p-16f, -0x1.6beb04p-19f, -0x1.407126p-23f, -0x1.eb2602p-23f,
      0.0f, -0x1.05a8bep-5f, -0x1.3751b8p-5f, -0x1.3eb628p-5f},
     {0x1.22ea14p-8f, 0x1.65702ep-8f, 0x1.1e3ca6p-8f, 0x1.67f35p-9f,
      0x1.339ae2p-10f, 0x1.081f76p-11f, 0x1.f9d302p-14f, 0x1.b1e068p-15f,
      0x1.002ee8p-17f, 0x1.e5eef2p-21f, 0x1.aa604p-25f, -0x1.04643ap-23f,
      0.0f, -0x1.013ec8p-7f, -0x1.800eb6p-9f, 0x1.f24cfep-11f},
     {0x1.2caeep-10f, 0x1.6f46c8p-14f, -0x1.3a29c8p-11f, -0x1.17f044p-11f,
      -0x1.1a92c6p-12f, -0x1.fefa54p-14f, -0x1.f53bc8p-16f, -0x1.afe534p-17f,
      -0x1.01fce6p-19f, -0x1.e9d51ep-23f, -0x1.a025e4p-27f, 0x1.d99364p-22f,
      0.0f, 0x1.9d0efap-9f, 0x1.a94f4ap-9f, 0x1.4ed82cp-9f},
     {-0x1.316986p-11f, -0x1.7baa3p-12f, -0x1.49e25ep-15f, 0x1.b7589cp-15f,
      0x1.78fd6p-15f, 0x1.7eae1p-16f, 0x1.8dbc5ap-18f, 0x1.4f9988p-19f,
      0x1.ade712p-22f, 0x1.7c887p-25f, 0x1.64383p-29f, 0x1.04640cp-21f,
      0.0f, 0x1.4b269cp-12f, -0x1.6442aap-13f, -0x1.1390b6p-11f},
     {0x1.1dc992p-15f, 0x1.727fa4p-14f, 0x1.b6c34cp-15f, 0x1.656cf2p-17f,
      -0x1.033ed8p-18f, -0x1.94761ap-19f, -0x1.1fa4c8p-20f, -0x1.60b5ccp-22f,
      -0x1.eee28ap-25f, -0x1.5bcad2p-28f, -0x1.2d42e6p-31f, 0x1.1cf7dep-23f,
      0.0f, -0x1.bb87c8p-13f, -0x1.71c396p-15f, 0x1.fdfcep-19f}}};

}  // namespace fastact
// clang-format on
