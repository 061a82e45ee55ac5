// Distinct ids, expansion and sums per id: each against the plain way.
#include "heterps/rows/rows.hpp"

#include <limits>
#include <random>
#include <unordered_map>
#include <vector>

#include "check.hpp"

using namespace heterps;

TEST(distinct_ids_come_in_order_of_first_occurrence) {
    const std::int64_t most = std::numeric_limits<std::int64_t>::max();
    std::vector<std::int64_t> ids = {0, -1, most, 0, -most - 1, most};
    std::mt19937_64 random(5);
    for (int i = 0; i < 5000; ++i) ids.push_back(static_cast<std::int64_t>(random() % 2000));
    std::vector<std::int64_t> distinct(ids.size()), inverse(ids.size());
    const std::size_t found =
        rows::find_distinct(ids.data(), ids.size(), distinct.data(), inverse.data());
    std::unordered_map<std::int64_t, std::int64_t> expected;
    for (std::size_t i = 0; i < ids.size(); ++i) {
        const auto next = static_cast<std::int64_t>(expected.size());
        CHECK_EQUAL(inverse[i], expected.emplace(ids[i], next).first->second);
        CHECK_EQUAL(distinct[static_cast<std::size_t>(inverse[i])], ids[i]);
    }
    CHECK_EQUAL(found, expected.size());
    CHECK_EQUAL(rows::find_distinct(nullptr, 0, nullptr, nullptr), 0u);
}

TEST(rows_are_expanded_and_their_gradients_summed_in_order) {
    const std::vector<std::int64_t> inverse = {2, 0, 2, 2};
    for (const std::size_t dim : {1u, 5u, 16u, 32u}) {
        std::vector<float> grads(4 * dim), sums(3 * dim, 9.0f), out(4 * dim);
        for (std::size_t i = 0; i < grads.size(); ++i) grads[i] = 0.1f * static_cast<float>(i);
        rows::sum_by(inverse.data(), grads.data(), 4, dim, sums.data(), 3);
        rows::expand(sums.data(), 3, inverse.data(), 4, dim, out.data());
        for (std::size_t c = 0; c < dim; ++c) {
            CHECK_EQUAL(out[dim + c], grads[dim + c]);
            CHECK_EQUAL(out[c], (grads[c] + grads[2 * dim + c]) + grads[3 * dim + c]);
            CHECK_EQUAL(sums[dim + c], 0.0f);
        }
    }
}

TEST(an_index_beyond_the_rows_is_refused) {
    const std::int64_t beyond[] = {0, 3}, below[] = {-1};
    std::vector<float> values(6), out(4);
    CHECK_THROWS(rows::expand(values.data(), 3, beyond, 2, 2, out.data()), std::invalid_argument);
    CHECK_THROWS(rows::sum_by(below, values.data(), 1, 2, out.data(), 2), std::invalid_argument);
}
