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
#include "heterps/store/update.hpp"

using namespace heterps::store;

template <class AnIndex, class KeyOf>
void check_index(KeyOf key_of) {
    AnIndex index;
    std::unordered_map<std::int64_t, std::uint64_t> expected;
    std::mt19937_64 random(1);
    std::uint64_t place = 0;
    const auto insert = [&](AnIndex& into, std::int64_t id, std::uint64_t at) {
        into.insert(AnIndex::hash(id), key_of(id), at);
    };
    for (int i = 0; i < 60000; ++i) {
        const auto id = static_cast<std::int64_t>(random() % 3000) - 1500;
        const std::uint64_t hash = AnIndex::hash(id);
        const auto known = expected.find(id);
        if (known != expected.end()) {
            CHECK(index.erase(hash, key_of(id), known->second));
            CHECK(!index.erase(hash, key_of(id), known->second));
            expected.erase(known);
            continue;
        }
        const std::size_t wanted = index.size(AnIndex::segment(hash)) + 1;
        if (index.lacks_room(wanted)) {
            AnIndex grown = AnIndex::sized_for(wanted);
            for (const auto& [old, at] : expected) insert(grown, old, at);
            index = std::move(grown);
        }
        expected[id] = ++place;
        insert(index, id, place);
    }
    CHECK_EQUAL(index.size(), expected.size());
    for (std::int64_t id = -1600; id < 1600; ++id) {
        const auto known = expected.find(id);
        bool found = false;
        index.visit(AnIndex::hash(id), key_of(id), [&](const auto& line, int slot) {
            return found = known != expected.end() && line.places[slot] == known->second;
        });
        CHECK_EQUAL(found, known != expected.end());
        if (!found) continue;
        CHECK(index.replace(AnIndex::hash(id), key_of(id), known->second, known->second + 1));
        CHECK(!index.replace(AnIndex::hash(id), key_of(id), known->second, 7));
    }
}

TEST(an_index_finds_what_was_put_in) {
    check_index<Index>([](std::int64_t id) { return id; });
    check_index<ColdIndex>([](std::int64_t id) { return cold_key(ColdIndex::hash(id)); });
}

// Where every line has been passed, a search must end all the same.
TEST(a_search_ends_after_a_round) {
    Index index;  // a segment has 4 lines of 5
    const auto in_line = [](std::uint64_t line) { return line << (26 + 30); };
    index.insert(in_line(1), 0, 1);
    for (std::int64_t id = 10; id < 29; ++id) index.insert(in_line(3), id, 2);
    CHECK(index.erase(in_line(3), 19, 2));  // from line 0
    index.insert(in_line(2), 30, 3);        // past lines 2 and 3
    for (std::uint64_t line = 0; line < 4; ++line)
        CHECK_EQUAL(index.find(in_line(line), 99), Index::kNowhere);
    CHECK_EQUAL(index.find(in_line(2), 30), 3u);
    CHECK_EQUAL(index.find(in_line(1), 0), 1u);
    for (std::int64_t id = 10; id < 29; ++id)
        CHECK_EQUAL(index.find(in_line(3), id), id == 19 ? Index::kNowhere : 2u);
}

TEST(a_slab_hands_out_each_row_once) {
    Slab slab(16, 4, std::size_t{64} << 20);
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

TEST(steps_at_which_no_row_was_last_seen_are_not_kept) {
    SeenCounts seen, of_a_thread;
    for (std::uint32_t step = 0; step < 100; ++step) {
        seen.add(step, 2);
        if (step >= 10) seen.add(step - 10, -2);
    }
    CHECK_EQUAL(seen.steps(), 10u);
    of_a_thread.add(95, -2);  // what another thread has added
    of_a_thread.add(100);
    seen.merge(of_a_thread);
    CHECK_EQUAL(seen.steps(), 10u);
    CHECK_EQUAL(of_a_thread.steps(), 0u);
    CHECK_EQUAL(seen.since(90), 19u);
    CHECK_EQUAL(seen.since(96), 9u);
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
        Grouping::Tables tables;
        std::size_t found = 0;
        for (std::size_t s = 0; s < Index::kSegments; ++s) {
            const DistinctRange range = grouping.find_distinct(s, tables);
            GradientSums sums;
            grouping.order_gradients(s, 1, sums);
            for (std::size_t d = 0; d < range.count; ++d, ++found)
                CHECK_EQUAL(*sums.of(range.begin()[d]), expected[range.begin()[d].id]);
        }
        CHECK_EQUAL(found, expected.size());
    }
}

TEST(an_id_may_occur_more_often_than_fits_sixteen_bits) {
    constexpr std::size_t kCount = 70001;
    ThreadPool pool(2);
    Grouping grouping;
    std::vector<std::int64_t> ids(kCount, 7);
    ids.back() = 8;
    const std::vector<float> ones(kCount, 1.0f);
    grouping.group({{ids.data(), ones.data(), kCount}}, pool);
    Grouping::Tables tables;
    for (std::size_t s = 0; s < Index::kSegments; ++s) {
        const DistinctRange range = grouping.find_distinct(s, tables);
        GradientSums sums;
        grouping.order_gradients(s, 1, sums);
        for (const Distinct& distinct : range)
            CHECK_EQUAL(*sums.of(distinct), distinct.id == 7 ? 70000.0f : 1.0f);
    }
    CHECK_EQUAL(grouping.distinct(), 2u);
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
    lift.ask({1, 0}, {{Slot::cold(10), 1}, {Slot::cold(29), 1}, {Slot::cold(20), 1}});
    CHECK_EQUAL(place_of(lift.next(2, 100), 0), 10u);
    lift.ask({2, 0}, {{Slot::cold(5), 2}, {Slot::cold(29), 2}});
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
    lift.ask({1, 20.0}, {{Slot::cold(9), 1}});
    CHECK_EQUAL(lift.owed(0, 4, 0), 2.0);  // ten floors in twenty
    CHECK_EQUAL(lift.owed(0, 4, 5), 1.0);
    CHECK_EQUAL(lift.left(19, 0), 0.0);
    CHECK_EQUAL(lift.left(20, 0), 10.0);
    lift.redirect({{Slot::cold(9), Slot::cold(30)}});
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
