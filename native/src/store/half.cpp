#include "heterps/store/half.hpp"

#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace heterps::store {

namespace {

std::uint32_t bits_of(float value) {
    std::uint32_t bits;
    std::memcpy(&bits, &value, 4);
    return bits;
}

float float_of(std::uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, 4);
    return value;
}

std::uint16_t half_of(float value) {
    const std::uint32_t bits = bits_of(value);
    const std::uint32_t sign = (bits >> 16) & 0x8000u;
    const std::uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u)  // NaN: quiet, with the payload's first bits
        return static_cast<std::uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
    if (magnitude >= 0x477ff000u) return static_cast<std::uint16_t>(sign | 0x7c00u);
    if (magnitude < 0x38800000u) {
        // Subnormal: adding 0.5 leaves the rounded multiple of 2^-24 in the last bits.
        const std::uint32_t rounded = bits_of(float_of(magnitude) + 0.5f) - 0x3f000000u;
        return static_cast<std::uint16_t>(sign | rounded);
    }
    const std::uint32_t odd = (magnitude >> 13) & 1;
    return static_cast<std::uint16_t>(sign | ((magnitude - 0x38000000u + 0xfffu + odd) >> 13));
}

float float_of_half(std::uint16_t half) {
    const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000u) << 16;
    const std::uint32_t exponent = (half >> 10) & 0x1fu, fraction = half & 0x3ffu;
    if (exponent == 0x1f) {
        const std::uint32_t quiet = fraction != 0 ? 0x400000u : 0;
        return float_of(sign | 0x7f800000u | quiet | (fraction << 13));
    }
    if (exponent == 0) {
        const float magnitude = static_cast<float>(fraction) * (1.0f / (1 << 24));
        return float_of(sign | bits_of(magnitude));
    }
    return float_of(sign | ((exponent + 112) << 23) | (fraction << 13));
}

#if defined(__x86_64__)
bool has_f16c() { return __builtin_cpu_supports("f16c"); }

[[gnu::target("avx,f16c")]] std::size_t to_fp16_wide(const float* from, std::size_t count,
                                                     std::uint16_t* to) {
    std::size_t i = 0;
    for (; i + 8 <= count; i += 8)
        _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i),
                         _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
    return i;
}

[[gnu::target("avx,f16c")]] std::size_t from_fp16_wide(const std::uint16_t* from, std::size_t count,
                                                       float* to) {
    std::size_t i = 0;
    for (; i + 8 <= count; i += 8)
        _mm256_storeu_ps(
            to + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i))));
    return i;
}
#else
bool has_f16c() { return false; }
std::size_t to_fp16_wide(const float*, std::size_t, std::uint16_t*) { return 0; }
std::size_t from_fp16_wide(const std::uint16_t*, std::size_t, float*) { return 0; }
#endif

}  // namespace

void to_bf16(const float* from, std::size_t count, std::uint16_t* to) {
    for (std::size_t i = 0; i < count; ++i) {
        const std::uint32_t bits = bits_of(from[i]);
        const std::uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1)) >> 16;
        const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
        to[i] = static_cast<std::uint16_t>(nan ? (bits >> 16) | 0x40u : rounded);
    }
}

void from_bf16(const std::uint16_t* from, std::size_t count, float* to) {
    for (std::size_t i = 0; i < count; ++i) to[i] = float_of(std::uint32_t{from[i]} << 16);
}

void to_fp16(const float* from, std::size_t count, std::uint16_t* to) {
    for (std::size_t i = has_f16c() ? to_fp16_wide(from, count, to) : 0; i < count; ++i)
        to[i] = half_of(from[i]);
}

void from_fp16(const std::uint16_t* from, std::size_t count, float* to) {
    for (std::size_t i = has_f16c() ? from_fp16_wide(from, count, to) : 0; i < count; ++i)
        to[i] = float_of_half(from[i]);
}

}  // namespace heterps::store
