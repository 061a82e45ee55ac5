// What a client does with a batch of ids: send each once, to the shard that owns it.
//
// Thread-safe.
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

// `distinct` promises that no id occurs twice. Throws std::invalid_argument unless 1 <= shards <=
// the number of buckets.
Route route(const std::int64_t* ids, std::size_t count, std::int64_t shards, bool distinct = false);

}  // namespace heterps::store
