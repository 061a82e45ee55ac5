// The hashes that every server, client and snapshot agrees on.
#pragma once

#include <cstdint>

namespace heterps::store {

constexpr std::uint64_t kGolden = 0x9E3779B97F4A7C15u;
constexpr int kBuckets = 1024;

constexpr std::uint64_t mix64(std::uint64_t x) {
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9u;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

// Which of the fixed buckets an id belongs to; shards own ranges of buckets.
constexpr std::uint16_t bucket_of(std::int64_t id) {
    return static_cast<std::uint16_t>(mix64(static_cast<std::uint64_t>(id) ^ 0x2545F4914F6CDD1Du) >>
                                      54);
}

constexpr std::int64_t shard_of_bucket(std::int64_t bucket, std::int64_t shards) {
    return bucket * shards / kBuckets;
}

}  // namespace heterps::store
