#include "heterps/store/routing.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "heterps/store/hash.hpp"

namespace heterps::store {

namespace {

constexpr std::size_t kAhead = 16;

void check(const std::int64_t* inverse, std::size_t count, std::size_t distinct) {
    std::uint64_t most = 0;  // a negative index is a very large one
    for (std::size_t i = 0; i < count; ++i)
        most = std::max(most, static_cast<std::uint64_t>(inverse[i]));
    if (count > 0 && most >= distinct)
        throw std::invalid_argument("inverse: an index is out of range for " +
                                    std::to_string(distinct) + " rows");
}

// The distinct ids in order of first occurrence; `inverse` receives an index for each id.
std::vector<std::int64_t> find_distinct(const std::int64_t* ids, std::size_t count,
                                        std::int64_t* inverse) {
    struct Place {
        std::int64_t id;
        std::int64_t index;  // plus one; 0: empty
    };
    std::size_t size = 16;
    while (size < 2 * count) size *= 2;
    std::vector<Place> table(size);
    const auto home = [&](std::int64_t id) {
        return mix64(static_cast<std::uint64_t>(id)) & (size - 1);
    };
    std::vector<std::int64_t> distinct;
    distinct.reserve(count);
    for (std::size_t i = 0; i < count; ++i) {
        if (i + kAhead < count) __builtin_prefetch(&table[home(ids[i + kAhead])]);
        std::size_t at = home(ids[i]);
        while (table[at].index != 0 && table[at].id != ids[i]) at = (at + 1) & (size - 1);
        if (table[at].index == 0) {
            distinct.push_back(ids[i]);
            table[at] = {ids[i], static_cast<std::int64_t>(distinct.size())};
        }
        inverse[i] = table[at].index - 1;
    }
    return distinct;
}

}  // namespace

Route route(const std::int64_t* ids, std::size_t count, std::int64_t shards) {
    if (shards < 1 || shards > kBuckets)
        throw std::invalid_argument("shards: 1 to " + std::to_string(kBuckets) + ", not " +
                                    std::to_string(shards));
    Route result;
    result.inverse.resize(count);
    std::vector<std::int64_t> distinct = find_distinct(ids, count, result.inverse.data());
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

void sum_duplicates(const float* gradients, const std::int64_t* inverse, std::size_t count, int dim,
                    float* sums, std::size_t distinct) {
    check(inverse, count, distinct);
    const auto width = static_cast<std::size_t>(dim);
    std::vector<std::uint8_t> seen(distinct);
    for (std::size_t i = 0; i < count; ++i) {
        if (i + kAhead < count)
            __builtin_prefetch(sums + static_cast<std::size_t>(inverse[i + kAhead]) * width, 1);
        const auto d = static_cast<std::size_t>(inverse[i]);
        float* __restrict sum = sums + d * width;
        const float* __restrict row = gradients + i * width;
        if (seen[d]) {
            for (std::size_t c = 0; c < width; ++c) sum[c] = sum[c] + row[c];
        } else {
            std::copy(row, row + width, sum);
            seen[d] = 1;
        }
    }
    for (std::size_t d = 0; d < distinct; ++d)
        if (!seen[d]) std::fill(sums + d * width, sums + (d + 1) * width, 0.0f);
}

void gather(const float* rows, std::size_t distinct, const std::int64_t* inverse, std::size_t count,
            int dim, float* out) {
    check(inverse, count, distinct);
    const auto width = static_cast<std::size_t>(dim);
    for (std::size_t i = 0; i < count; ++i) {
        if (i + kAhead < count)
            __builtin_prefetch(rows + static_cast<std::size_t>(inverse[i + kAhead]) * width);
        const float* row = rows + static_cast<std::size_t>(inverse[i]) * width;
        std::copy(row, row + width, out + i * width);
    }
}

}  // namespace heterps::store
