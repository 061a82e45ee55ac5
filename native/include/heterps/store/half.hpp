// 16-bit floats for the wire: bfloat16 and IEEE half, rounded to nearest even.
#pragma once

#include <cstddef>
#include <cstdint>

namespace heterps::store {

// NaN stays NaN; too large becomes infinite. Thread-safe.
void to_bf16(const float* from, std::size_t count, std::uint16_t* to);
void from_bf16(const std::uint16_t* from, std::size_t count, float* to);
void to_fp16(const float* from, std::size_t count, std::uint16_t* to);
void from_fp16(const std::uint16_t* from, std::size_t count, float* to);

}  // namespace heterps::store
