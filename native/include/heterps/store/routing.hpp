// What a client does with a batch of ids: send each once, to the shard that owns it.
//
// All functions are thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace heterps::store {

struct Route {
    std::vector<std::int64_t> ids;      // distinct, by shard, in order of first occurrence there
    std::vector<std::int64_t> offsets;  // shards + 1: where each shard's ids begin
    std::vector<std::int64_t> inverse;  // for each id asked for, its index in `ids`
};

// Throws std::invalid_argument unless 1 <= shards <= the number of buckets.
Route route(const std::int64_t* ids, std::size_t count, std::int64_t shards);

// sums[inverse[i]] += gradients[i], in order; `sums` is [distinct, dim] and overwritten. Throws
// std::invalid_argument if an index is out of range.
void sum_duplicates(const float* gradients, const std::int64_t* inverse, std::size_t count, int dim,
                    float* sums, std::size_t distinct);

// out[i] = rows[inverse[i]]. Throws std::invalid_argument if an index is out of range.
void gather(const float* rows, std::size_t distinct, const std::int64_t* inverse, std::size_t count,
            int dim, float* out);

}  // namespace heterps::store
