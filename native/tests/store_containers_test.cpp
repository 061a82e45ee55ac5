// Index, slab, counters, grouping, batches: against the standard library's containers.
#include <map>
#include <random>
#include <set>
#include <unordered_map>

#include "check.hpp"
#include "heterps/store/batches.hpp"
#include "heterps/store/grouping.hpp"
#include "heterps/store/index.hpp"
#include "heterps/store/lift.hpp"
#include "heterps/store/sightings.hpp"
#include "heterps/store/slab.hpp"
#include "heterps/store/thread_pool.hpp"

using namespace heterps::store;

TEST(an_index_finds_what_was_put_in) {
    Index index;
    std::unordered_map<std::int64_t, std::uint64_t> expected;
    std::mt19937_64 random(1);
    for (int i = 0; i < 20000; ++i) {
        const auto id = static_cast<std::int64_t>(random() % 3000);
        const std::uint64_t hash = Index::hash(id);
        const auto known = expected.find(id);
        if (known != expected.end()) {
            CHECK(index.erase(hash, Slot::hot(hash, known->second)));
            expected.erase(known);
            continue;
        }
        if (index.lacks_room(Index::segment(hash), 1)) {
            Index grown = index.grown(1);
            for (const auto& [old, place] : expected)
                grown.insert(Index::hash(old), Slot::hot(Index::hash(old), place));
            index = std::move(grown);
        }
        expected[id] = random() % 1000000;
        index.insert(hash, Slot::hot(hash, expected[id]));
    }
    CHECK_EQUAL(index.size(), expected.size());
    std::size_t guessed = 0;
    for (const auto& [id, place] : expected)
        guessed += index.guess(Index::hash(id)) == Slot::hot(Index::hash(id), place);
    CHECK(guessed + 5 > expected.size());
    CHECK(!index.guess(Index::hash(-1)));
    for (const auto& [id, place] : expected) {
        const Slot slot = Slot::hot(Index::hash(id), place);
        CHECK(index.find(Index::hash(id), [&](Slot found) { return found == slot; }));
        CHECK(index.replace(Index::hash(id), slot, Slot::cold(Index::hash(id), place)));
        CHECK(!index.replace(Index::hash(id), slot, slot));
    }
}

TEST(a_slab_hands_out_each_row_once) {
    Slab slab(20, std::size_t{64} << 20);
    std::set<std::uint64_t> used;
    std::mt19937_64 random(2);
    for (int i = 0; i < 300; ++i) {
        std::vector<std::uint64_t> rows(random() % 100);
        slab.allocate(rows.size(), rows.data());
        for (const std::uint64_t row : rows) CHECK(used.insert(row).second);
        while (used.size() > 2000) {
            slab.release(*used.begin());
            used.erase(used.begin());
        }
    }
    CHECK_EQUAL(slab.size(), used.size());
    CHECK(slab.end() < 2300);
    while (*used.rbegin() >= 1000) {
        slab.release(*used.rbegin());
        used.erase(std::prev(used.end()));
        if (used.empty()) break;
    }
    slab.shrink();
    CHECK(slab.end() <= 1024);
}

TEST(sightings_count_like_a_map) {
    Sightings sightings;
    std::map<std::int64_t, std::uint32_t> expected;
    std::mt19937_64 random(3);
    for (std::uint32_t i = 0; i < 20000; ++i) {
        const auto id = static_cast<std::int64_t>(random() % 500) - 250;
        if (random() % 3 == 0) {
            CHECK_EQUAL(sightings.erase(id), expected.erase(id) > 0);
        } else {
            sightings.set(id, 1 + i % 7, i);
            expected[id] = i;
        }
    }
    CHECK_EQUAL(sightings.size(), expected.size());
    sightings.erase_before(19900);
    std::size_t left = 0;
    for (const auto& [id, seen] : expected) {
        left += seen >= 19900;
        CHECK_EQUAL(sightings.find(id) != nullptr, seen >= 19900);
    }
    CHECK_EQUAL(sightings.size(), left);
}

TEST(gradients_are_summed_by_part_and_occurrence) {
    std::mt19937_64 random(4);
    ThreadPool pool(3);
    Grouping grouping;
    for (const std::size_t parts : {1u, 3u}) {
        std::vector<std::vector<std::int64_t>> ids(parts);
        std::vector<std::vector<float>> gradients(parts);
        std::map<std::int64_t, float> expected;
        std::vector<Span> spans;
        for (std::size_t p = 0; p < parts; ++p) {
            std::map<std::int64_t, float> sums;
            for (int i = 0; i < 9000; ++i) {
                ids[p].push_back(static_cast<std::int64_t>(random() % 1500));
                gradients[p].push_back(static_cast<float>(random() % 1000) * 0.001f);
                const auto [at, fresh] = sums.emplace(ids[p].back(), gradients[p].back());
                if (!fresh) at->second = at->second + gradients[p].back();
            }
            for (const auto& [id, sum] : sums) {
                const auto [at, fresh] = expected.emplace(id, sum);
                if (!fresh) at->second = at->second + sum;
            }
            spans.push_back({ids[p].data(), gradients[p].data(), ids[p].size()});
        }
        grouping.group(spans, pool);
        const Index index;
        std::vector<std::uint32_t> table;
        std::size_t found = 0;
        for (std::size_t s = 0; s < Index::kSegments; ++s) {
            const DistinctRange range = grouping.find_distinct(s, index, table);
            GradientSums sums;
            grouping.order_gradients(s, 1, sums);
            for (std::size_t d = 0; d < range.count; ++d, ++found)
                CHECK_EQUAL(*sums.of(range.begin()[d]), expected[range.begin()[d].id]);
        }
        CHECK_EQUAL(found, expected.size());
    }
}

TEST(a_batch_is_whole_when_its_parts_are_in) {
    Batches batches;
    batches.add(4, {1, 0}, {{7}, {1.0f}});
    batches.announce(4, 2, 0.5);
    batches.announce(4, 2, 0.7);
    CHECK(!batches.whole(4) && batches.has(4, {1, 0}) && !batches.has(4, {0, 0}));
    CHECK_THROWS(batches.announce(4, 3, {}), std::invalid_argument);
    batches.add(4, {0, 5}, {{8, 9}, {1.0f, 2.0f}});
    CHECK(batches.whole(4));
    CHECK_THROWS(batches.has(4, {2, 0}), std::invalid_argument);
    const Batch batch = batches.take(4);
    CHECK(batch.lr == 0.5 && batch.spans()[0].count == 2 && batch.spans()[1].ids[0] == 7);
}

std::uint64_t place_of(const std::vector<Rider>& riders, std::size_t i) {
    return riders[i].slot.place();
}

TEST(a_lift_serves_each_request_within_a_round) {
    Lift lift(10);  // three floors
    lift.ask({1, 0}, {{Slot::cold(1, 10), 1}, {Slot::cold(1, 29), 1}, {Slot::cold(1, 20), 1}});
    CHECK_EQUAL(place_of(lift.next(2, 100), 0), 10u);
    lift.ask({2, 0}, {{Slot::cold(1, 5), 2}, {Slot::cold(1, 29), 2}});
    CHECK_EQUAL(lift.left(0, 0), 3.0);
    const std::vector<Rider> riders = lift.next(1, 100);
    CHECK_EQUAL(riders.size(), 2u);
    CHECK_EQUAL(riders[1].used_by, 2u);  // of two for one row the later
    CHECK_EQUAL(lift.served(), 0u);
    CHECK_EQUAL(place_of(lift.next(2, 100), 0), 5u);
    CHECK_EQUAL(lift.served(), 2u);
    lift.ask({3, 0}, {});
    CHECK_EQUAL(lift.served(), 3u);
}

TEST(a_lift_goes_as_slowly_as_its_requests_allow) {
    Lift lift(1);
    lift.ask({1, 20.0}, {{Slot::cold(1, 9), 1}});
    CHECK_EQUAL(lift.owed(0, 4, 0), 2.0);  // ten floors in twenty
    CHECK_EQUAL(lift.owed(0, 4, 5), 1.0);
    CHECK_EQUAL(lift.left(19, 0), 0.0);
    CHECK_EQUAL(lift.left(20, 0), 10.0);
    lift.redirect({{Slot::cold(1, 9), Slot::cold(1, 30)}});
    CHECK_EQUAL(place_of(lift.next(1, 100), 0), 30u);  // who was moved comes next
}

TEST(a_thread_pool_passes_errors_on_after_all_parts) {
    ThreadPool pool(3);
    std::atomic<int> done{0};
    const auto work = [&](std::size_t part) {
        ++done;
        if (part == 5) throw std::runtime_error("part");
    };
    CHECK_THROWS(pool.run(40, work), std::runtime_error);
    CHECK_EQUAL(done.load(), 40);
}
