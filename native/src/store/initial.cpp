#include "heterps/store/initial.hpp"

#include <algorithm>
#include <stdexcept>

#include "heterps/store/hash.hpp"

namespace heterps::store {

namespace {

// The sum of the 16-bit lanes of three hashes: twelve uniform numbers, so nearly normal.
std::int32_t lane_sum(std::uint64_t hash) {
    std::int32_t sum = 0;
    for (std::uint64_t k = 1; k <= 3; ++k) {
        const std::uint64_t lanes = mix64(hash + k * kGolden);
        for (int shift = 0; shift < 64; shift += 16)
            sum += static_cast<std::int32_t>((lanes >> shift) & 0xffff);
    }
    return sum;
}

constexpr std::int32_t kLaneMean = 393210;  // 12 * 65535 / 2

}  // namespace

InitialKind initial_kind(const std::string& name) {
    if (name == "zeros") return InitialKind::kZeros;
    if (name == "constant") return InitialKind::kConstant;
    if (name == "uniform") return InitialKind::kUniform;
    if (name == "normal") return InitialKind::kNormal;
    throw std::invalid_argument("unknown initializer '" + name +
                                "' (known: constant, normal, uniform, zeros)");
}

Initial::Initial(InitialKind kind, double scale, std::uint64_t seed)
    : kind_(kind),
      scale_(static_cast<float>(scale)),
      normal_scale_(static_cast<float>(scale / 65536.0)),
      seed_hash_(mix64(seed + kGolden)) {}

void Initial::fill(std::int64_t id, float* row, int dim) const {
    switch (kind_) {
        case InitialKind::kZeros:
            std::fill(row, row + dim, 0.0f);
            return;
        case InitialKind::kConstant:
            std::fill(row, row + dim, scale_);
            return;
        case InitialKind::kUniform:
            return uniform(seed_hash_ ^ mix64(static_cast<std::uint64_t>(id)), row, dim);
        case InitialKind::kNormal:
            return normal(seed_hash_ ^ mix64(static_cast<std::uint64_t>(id)), row, dim);
    }
}

void Initial::uniform(std::uint64_t hash, float* row, int dim) const {
    const std::uint64_t h = mix64(hash);
    for (int c = 0; c < dim; ++c) {
        const std::uint64_t bits = mix64(h + static_cast<std::uint64_t>(c + 1) * kGolden) >> 40;
        // (2u - 1) with u = bits / 2^24: exact, so the product is the only rounding.
        const auto centred = static_cast<std::int32_t>(bits) - (1 << 23);
        row[c] = static_cast<float>(centred) * (1.0f / (1 << 23)) * scale_;
    }
}

void Initial::normal(std::uint64_t hash, float* row, int dim) const {
    const std::uint64_t h = mix64(hash);
    for (int c = 0; c < dim; ++c) {
        const std::uint64_t column = mix64(h + static_cast<std::uint64_t>(c + 1) * kGolden);
        row[c] = static_cast<float>(lane_sum(column) - kLaneMean) * normal_scale_;
    }
}

}  // namespace heterps::store
