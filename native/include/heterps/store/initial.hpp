// First values of a row: a hash of (seed, id, column) and nothing else.
#pragma once

#include <cstdint>
#include <string>

namespace heterps::store {

enum class InitialKind { kZeros, kConstant, kUniform, kNormal };

InitialKind initial_kind(const std::string& name);  // throws std::invalid_argument

class Initial {
  public:
    Initial(InitialKind kind, double scale, std::uint64_t seed);

    // Writes `dim` values. Thread-safe.
    void fill(std::int64_t id, float* row, int dim) const;

  private:
    void uniform(std::uint64_t hash, float* row, int dim) const;
    void normal(std::uint64_t hash, float* row, int dim) const;

    InitialKind kind_;
    float scale_;
    float normal_scale_;
    std::uint64_t seed_hash_;
};

}  // namespace heterps::store
