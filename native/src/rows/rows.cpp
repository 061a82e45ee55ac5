#include "heterps/rows/rows.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "heterps/store/hash.hpp"

namespace heterps::rows {

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

void fetch(const float* row, std::size_t dim) {
    __builtin_prefetch(row);
    __builtin_prefetch(row + dim - 1);
}

// With a width that is known the loops over columns are unrolled.
template <std::size_t Dim>
void expand_rows(const float* values, const std::int64_t* inverse, std::size_t count,
                 std::size_t given, float* out) {
    const std::size_t dim = Dim > 0 ? Dim : given;
    const auto row = [&](std::size_t i) {
        return values + static_cast<std::size_t>(inverse[i]) * dim;
    };
    for (std::size_t i = 0; i < count; ++i) {
        if (i + kAhead < count) fetch(row(i + kAhead), dim);
        std::memcpy(out + i * dim, row(i), dim * sizeof(float));
    }
}

template <std::size_t Dim>
void add_rows(const std::int64_t* inverse, const float* grads, std::size_t count, std::size_t given,
              float* sums) {
    const std::size_t dim = Dim > 0 ? Dim : given;
    const auto target = [&](std::size_t i) {
        return sums + static_cast<std::size_t>(inverse[i]) * dim;
    };
    for (std::size_t i = 0; i < count; ++i) {
        if (i + kAhead < count) fetch(target(i + kAhead), dim);
        const float* __restrict row = grads + i * dim;
        float* __restrict sum = target(i);
        for (std::size_t c = 0; c < dim; ++c) sum[c] = sum[c] + row[c];
    }
}

}  // namespace

// Whether an id was there before cannot be foreseen, so no branch depends on it: each id is written
// down as if it were new, and that stands unless it is found.
std::size_t find_distinct(const std::int64_t* ids, std::size_t count, std::int64_t* distinct,
                          std::int64_t* inverse) {
    std::size_t size = 16;
    while (size < 2 * count) size *= 2;
    std::vector<std::uint32_t> table(size);
    const auto home = [&](std::int64_t id) {
        return store::mix64(static_cast<std::uint64_t>(id)) & (size - 1);
    };
    std::uint32_t found = 0;
    for (std::size_t i = 0; i < count; ++i) {
        if (i + kAhead < count) __builtin_prefetch(&table[home(ids[i + kAhead])]);
        const std::int64_t id = ids[i];
        distinct[found] = id;
        std::size_t at = home(id);
        std::uint32_t d;
        for (;; at = (at + 1) & (size - 1)) {
            d = table[at] != 0 ? table[at] - 1 : found;
            if (distinct[d] == id) break;
        }
        table[at] = d + 1;
        inverse[i] = d;
        found += d == found ? 1 : 0;
    }
    return found;
}

void expand(const float* values, std::size_t distinct, const std::int64_t* inverse,
            std::size_t count, std::size_t dim, float* out) {
    check(inverse, count, distinct);
    const auto work = dim == 16 ? &expand_rows<16> : dim == 32 ? &expand_rows<32> : &expand_rows<0>;
    if (dim > 0) work(values, inverse, count, dim, out);
}

void sum_by(const std::int64_t* inverse, const float* grads, std::size_t count, std::size_t dim,
            float* sums, std::size_t distinct) {
    check(inverse, count, distinct);
    std::fill(sums, sums + distinct * dim, 0.0f);
    const auto work = dim == 16 ? &add_rows<16> : dim == 32 ? &add_rows<32> : &add_rows<0>;
    if (dim > 0) work(inverse, grads, count, dim, sums);
}

}  // namespace heterps::rows
