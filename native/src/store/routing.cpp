#include "heterps/store/routing.hpp"

#include <numeric>
#include <stdexcept>
#include <string>

#include "heterps/rows/rows.hpp"
#include "heterps/store/hash.hpp"

namespace heterps::store {

Route route(const std::int64_t* ids, std::size_t count, std::int64_t shards, bool distinct_ids) {
    if (shards < 1 || shards > kBuckets)
        throw std::invalid_argument("shards: 1 to " + std::to_string(kBuckets) + ", not " +
                                    std::to_string(shards));
    Route result;
    result.inverse.resize(count);
    std::vector<std::int64_t> distinct(ids, ids + count);
    if (distinct_ids)
        std::iota(result.inverse.begin(), result.inverse.end(), 0);
    else
        distinct.resize(rows::find_distinct(ids, count, distinct.data(), result.inverse.data()));
    result.offsets.assign(static_cast<std::size_t>(shards) + 1, 0);
    if (shards == 1) {
        result.offsets[1] = static_cast<std::int64_t>(distinct.size());
        result.ids = std::move(distinct);
        return result;
    }
    // A stable counting sort by shard.
    std::vector<std::uint16_t> owner(distinct.size());
    for (std::size_t d = 0; d < distinct.size(); ++d) {
        owner[d] = static_cast<std::uint16_t>(shard_of_bucket(bucket_of(distinct[d]), shards));
        ++result.offsets[owner[d] + 1u];
    }
    for (std::size_t s = 0; s < static_cast<std::size_t>(shards); ++s)
        result.offsets[s + 1] += result.offsets[s];
    std::vector<std::int64_t> next(result.offsets.begin(), result.offsets.end() - 1);
    std::vector<std::int64_t> moved(distinct.size());
    result.ids.resize(distinct.size());
    for (std::size_t d = 0; d < distinct.size(); ++d) {
        moved[d] = next[owner[d]]++;
        result.ids[static_cast<std::size_t>(moved[d])] = distinct[d];
    }
    for (std::int64_t& index : result.inverse) index = moved[static_cast<std::size_t>(index)];
    return result;
}

}  // namespace heterps::store
