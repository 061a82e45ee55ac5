// Hashes, first values, rules, 16-bit floats, routing: each against what it was written down as.
#include <cmath>
#include <cstring>
#include <random>

#include "check.hpp"
#include "heterps/store/dense.hpp"
#include "heterps/store/half.hpp"
#include "heterps/store/hash.hpp"
#include "heterps/store/initial.hpp"
#include "heterps/store/routing.hpp"
#include "heterps/store/row_sums.hpp"
#include "heterps/store/rules.hpp"

using namespace heterps::store;

namespace {

std::vector<float> normal(std::size_t count, unsigned seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> values;
    std::vector<float> result(count);
    for (float& value : result) value = values(random);
    return result;
}

}  // namespace

TEST(buckets_are_even_and_shards_own_ranges) {
    std::vector<int> counts(kBuckets);
    for (std::int64_t id = -50000; id < 50000; ++id) ++counts[bucket_of(id)];
    for (const int count : counts) CHECK(count > 40 && count < 160);
    CHECK_EQUAL(shard_of_bucket(0, 7), 0);
    CHECK_EQUAL(shard_of_bucket(kBuckets - 1, 7), 6);
}

TEST(first_values_have_the_asked_for_scale) {
    std::vector<float> row(4000);
    Initial(InitialKind::kUniform, 0.5, 3).fill(-7, row.data(), 4000);
    double sum = 0, most = 0;
    for (const float value : row) {
        sum += value;
        most = std::max(most, std::fabs(static_cast<double>(value)));
    }
    CHECK(std::fabs(sum / 4000) < 0.02 && most <= 0.5 && most > 0.49);
    Initial(InitialKind::kNormal, 2.0, 3).fill(-7, row.data(), 4000);
    double squares = 0;
    for (const float value : row) squares += static_cast<double>(value) * value;
    CHECK(std::fabs(squares / 4000 - 4.0) < 0.4);
}

TEST(first_values_depend_on_seed_id_and_column_only) {
    float a[8], b[3], c[8];
    Initial(InitialKind::kUniform, 1, 3).fill(9, a, 8);
    Initial(InitialKind::kUniform, 1, 3).fill(9, b, 3);
    Initial(InitialKind::kUniform, 1, 4).fill(9, c, 8);
    CHECK(std::memcmp(a, b, sizeof b) == 0);
    CHECK(std::memcmp(a, c, sizeof a) != 0);
}

TEST(rules_give_the_same_bits_on_every_instruction_set) {
    for (const char* name : {"sgd", "adagrad", "rowwise_adagrad", "adam", "ftrl"})
        for (const int dim : {1, 3, 7, 8, 16, 31, 32, 64, 100}) {
            const Rule rule(name, {});
            const auto width = static_cast<std::size_t>(dim + rule.state_width(dim));
            std::vector<float> wide = normal(width, 1);
            for (float& value : wide) value = std::fabs(value);
            std::vector<float> plain = wide;
            for (unsigned step = 1; step < 5; ++step) {
                const std::vector<float> gradient = normal(static_cast<std::size_t>(dim), step);
                const RuleStep at = rule.at(0.1, step, dim);
                rule.function(dim)(at, wide.data(), wide.data() + dim, gradient.data());
                rule.function(dim, true)(at, plain.data(), plain.data() + dim, gradient.data());
            }
            CHECK(std::memcmp(wide.data(), plain.data(), width * sizeof(float)) == 0);
        }
}

TEST(rows_are_summed_in_order_on_every_instruction_set) {
    for (const int dim : {1, 3, 8, 16, 31, 32, 64})
        for (const std::size_t count : {1u, 2u, 9u}) {
            const auto width = static_cast<std::size_t>(dim);
            const std::vector<float> values = normal(count * width, 3);
            std::vector<const float*> rows(count + kRowsAhead, values.data());
            std::vector<float> expected(width, -0.0f), sum(width);
            for (std::size_t i = 0; i < count; ++i) {
                rows[i] = values.data() + i * width;
                for (std::size_t c = 0; c < width; ++c) expected[c] = expected[c] + rows[i][c];
            }
            for (const bool portable : {false, true}) {
                sum_rows_function(dim, portable)(rows.data(), count, dim, sum.data());
                CHECK(sum == expected);
            }
        }
}

TEST(rules_follow_their_formulas) {
    float row[2] = {1, 2}, state[4] = {4, 0, 0, 0};
    const float gradient[2] = {3, 4};
    Rule("sgd", {}).function(2)(Rule("sgd", {}).at(0.5, 1, 2), row, nullptr, gradient);
    CHECK_EQUAL(row[0], -0.5f);
    const Rule rowwise("rowwise_adagrad", {});
    rowwise.function(2)(rowwise.at(1, 1, 2), row, state, gradient);
    CHECK_EQUAL(state[0], 16.5f);  // 4 + (9 + 16) / 2
    CHECK_EQUAL(row[1], 0.0f - 4 / std::sqrt(16.5f));
    CHECK_THROWS(Rule("sgdd", {}), std::invalid_argument);
}

TEST(halves_survive_the_round_trip) {
    for (std::uint32_t bits = 0; bits < 65536; ++bits) {
        const auto half = static_cast<std::uint16_t>(bits);
        float value, widened[9];
        std::uint16_t back, many[9], given[9];
        from_fp16(&half, 1, &value);
        to_fp16(&value, 1, &back);
        std::fill(given, given + 9, half);
        from_fp16(given, 9, widened);  // eight at a time, and one
        to_fp16(widened, 9, many);
        CHECK(std::isnan(value) || (back == half && many[0] == half));
        CHECK(std::memcmp(&value, &widened[0], 4) == 0);
        from_bf16(&half, 1, &value);
        to_bf16(&value, 1, &back);
        CHECK(std::isnan(value) || back == half);
    }
}

TEST(halves_round_to_nearest_even) {
    const float values[5] = {2049.0f, 2051.0f, 65519.0f, 65520.0f, 0x1p-25f};
    std::uint16_t halves[5];
    to_fp16(values, 5, halves);
    float back[5];
    from_fp16(halves, 5, back);
    CHECK_EQUAL(back[0], 2048.0f);
    CHECK_EQUAL(back[1], 2052.0f);
    CHECK_EQUAL(back[2], 65504.0f);
    CHECK(std::isinf(back[3]));
    CHECK_EQUAL(back[4], 0.0f);
}

TEST(a_route_names_each_id_once_by_shard) {
    const std::vector<std::int64_t> ids = {5, -3, 5, 900, -3, 12, 5};
    const Route result = route(ids.data(), ids.size(), 3);
    CHECK_EQUAL(result.ids.size(), 4u);
    for (std::size_t i = 0; i < ids.size(); ++i)
        CHECK_EQUAL(result.ids[static_cast<std::size_t>(result.inverse[i])], ids[i]);
    for (std::int64_t shard = 0; shard < 3; ++shard)
        for (auto i = result.offsets[static_cast<std::size_t>(shard)];
             i < result.offsets[static_cast<std::size_t>(shard) + 1]; ++i)
            CHECK_EQUAL(shard_of_bucket(bucket_of(result.ids[static_cast<std::size_t>(i)]), 3),
                        shard);
    CHECK_THROWS(route(ids.data(), 1, 0), std::invalid_argument);
}

TEST(a_route_of_distinct_ids_is_the_same_without_looking_for_duplicates) {
    const std::vector<std::int64_t> ids = {5, -3, 900, 12, 77};
    for (const std::int64_t shards : {1, 3}) {
        const Route plain = route(ids.data(), ids.size(), shards);
        const Route promised = route(ids.data(), ids.size(), shards, true);
        CHECK(plain.ids == promised.ids && plain.inverse == promised.inverse);
        CHECK(plain.offsets == promised.offsets);
    }
}

TEST(a_dense_tensor_follows_its_rule) {
    const float values[4] = {1, 2, 3, 4}, gradients[4] = {1, 1, 1, 1};
    Dense dense(values, 2, 2, "sgd", {}, 0.5);
    dense.push(gradients, {});
    dense.push(gradients, 1.0);
    float out[4];
    dense.pull(out);
    CHECK(out[0] == -0.5f && out[3] == 2.5f && dense.step() == 2);
}
