// What a layer does with the rows of a micro-batch: ask for each once, lay them out by id, and sum
// their gradients.
//
// All functions are thread-safe and deterministic.
#pragma once

#include <cstddef>
#include <cstdint>

namespace heterps::rows {

// Writes the distinct ids in order of first occurrence, and for each id which of them it is; both
// arrays have room for `count`. Returns how many there are.
std::size_t find_distinct(const std::int64_t* ids, std::size_t count, std::int64_t* distinct,
                          std::int64_t* inverse);

// out[i] = values[inverse[i]], rows of `dim`. Throws std::invalid_argument if an index is not below
// `distinct`.
void expand(const float* values, std::size_t distinct, const std::int64_t* inverse,
            std::size_t count, std::size_t dim, float* out);

// sums[inverse[i]] += grads[i] in order of i, from zero. Throws as above, before anything is
// written.
void sum_by(const std::int64_t* inverse, const float* grads, std::size_t count, std::size_t dim,
            float* sums, std::size_t distinct);

}  // namespace heterps::rows
