// A table against a plain map, in RAM and with most rows on disk; what fails and what threads do.
#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <random>
#include <thread>

#include "check.hpp"
#include "heterps/store/table.hpp"

using namespace heterps::store;
using heterps::testing::TemporaryFolder;

namespace {

constexpr int kDim = 4;

TableOptions options(const std::string& path = "", std::uint64_t memory_bytes = 0) {
    TableOptions o;
    o.dim = kDim;
    o.rule = "sgd";
    o.lr = 1;
    o.threads = 2;
    o.path = path;
    o.memory_bytes = memory_bytes;
    return o;
}

// With SGD, a rate of 1 and whole numbers the order of pushes does not matter to the result.
struct Traffic {
    std::vector<std::int64_t> ids;
    std::vector<float> gradients;
    Traffic(std::uint64_t seed, std::size_t count, std::size_t space) {
        std::mt19937_64 random(seed);
        for (std::size_t i = 0; i < count; ++i) {
            ids.push_back(static_cast<std::int64_t>(random() % space));
            for (int c = 0; c < kDim; ++c)
                gradients.push_back(static_cast<float>(random() % 17) - 8.0f);
        }
    }
    void push(Table& table) const { table.push(ids.data(), ids.size(), gradients.data(), {}); }
    void add_to(std::map<std::int64_t, std::vector<float>>& rows) const {
        for (std::size_t i = 0; i < ids.size(); ++i) {
            std::vector<float>& row = rows[ids[i]];
            row.resize(kDim);
            for (std::size_t c = 0; c < kDim; ++c) row[c] -= gradients[i * kDim + c];
        }
    }
};

void check_rows(Table& table, const std::map<std::int64_t, std::vector<float>>& rows) {
    std::vector<std::int64_t> ids;
    for (const auto& [id, row] : rows) ids.push_back(id);
    std::vector<float> out(ids.size() * kDim);
    table.pull(ids.data(), ids.size(), out.data());
    for (std::size_t i = 0; i < ids.size(); ++i)
        CHECK(std::memcmp(rows.at(ids[i]).data(), out.data() + i * kDim, kDim * sizeof(float)) ==
              0);
    CHECK_EQUAL(table.size(), rows.size());
}

std::map<std::int64_t, std::vector<float>> read_all(Capture& capture, std::size_t at_once) {
    std::map<std::int64_t, std::vector<float>> rows;
    RowBatch batch;
    while (capture.next(at_once, batch))
        for (std::size_t i = 0; i < batch.ids.size(); ++i) {
            const float* row = batch.values.data() + i * kDim;
            CHECK(rows.emplace(batch.ids[i], std::vector<float>(row, row + kDim)).second);
        }
    return rows;
}

// The descriptor of the nameless file in a folder.
int cold_descriptor(const std::string& folder) {
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
        std::error_code error;
        const std::string target = std::filesystem::read_symlink(entry.path(), error);
        if (target.rfind(folder, 0) == 0) return std::stoi(entry.path().filename());
    }
    return -1;
}

// What `mix64` makes into the hash.
std::int64_t id_of_hash(std::uint64_t hash) {
    const auto unshift = [](std::uint64_t x, int bits) {
        std::uint64_t result = x;
        for (int known = bits; known < 64; known += bits) result = x ^ (result >> bits);
        return result;
    };
    const auto inverse = [](std::uint64_t odd) {
        std::uint64_t result = odd;  // each round doubles the bits that are right, from three on
        for (int i = 0; i < 5; ++i) result *= 2 - odd * result;
        return result;
    };
    std::uint64_t x = unshift(hash, 31) * inverse(0x94d049bb133111ebu);
    x = unshift(x, 27) * inverse(0xbf58476d1ce4e5b9u);
    return static_cast<std::int64_t>(unshift(x, 30));
}

}  // namespace

TEST(a_table_keeps_rows_in_ram_and_on_disk_alike) {
    const TemporaryFolder folder;
    Table hot(options()), cold(options(folder.path(), 40000));
    std::map<std::int64_t, std::vector<float>> rows;
    for (std::uint64_t i = 0; i < 60; ++i) {
        const Traffic traffic(i, 700, 6000);
        if (i % 3 == 0) cold.prefetch(traffic.ids.data(), traffic.ids.size());
        if (i % 6 == 0) cold.drain();
        traffic.push(hot);
        traffic.push(cold);
        traffic.add_to(rows);
    }
    CHECK(cold.stats().at("cold_rows") > 3000);
    check_rows(hot, rows);
    check_rows(cold, rows);
    const std::vector<std::int64_t> some = {rows.begin()->first, std::next(rows.begin())->first};
    cold.remove(some.data(), some.size());
    for (const std::int64_t id : some) rows[id].assign(kDim, 0.0f);
    rows.erase(some[0]);
    rows.erase(some[1]);
    check_rows(cold, rows);
}

TEST(ids_that_look_alike_on_disk_keep_a_row_each) {
    const TemporaryFolder folder;
    Table table(options(folder.path(), 1));
    std::map<std::int64_t, std::vector<float>> rows;
    std::mt19937_64 random(1);
    std::vector<std::int64_t> ids;
    for (std::uint64_t i = 0; i < 600; ++i)  // of one segment, with the same 16 bits at the end
        ids.push_back(id_of_hash((random() >> 32) << 26 | i << 16 | 0x1234));
    CHECK_EQUAL(Index::hash(ids[7]) & 0x3ffffff, std::uint64_t{7 << 16 | 0x1234});
    for (std::uint64_t step = 0; step < 200; ++step) {
        Traffic traffic(step, 40, ids.size());
        for (std::int64_t& id : traffic.ids) id = ids[static_cast<std::size_t>(id)];
        traffic.push(table);
        traffic.add_to(rows);
        CHECK_EQUAL(table.size(), rows.size());
    }
    CHECK(table.stats().at("cold_rows") > 100);
    check_rows(table, rows);
}

TEST(a_pull_gives_the_same_rows_past_the_cache_and_through_it) {
    constexpr std::size_t kCount = 70000, kWide = 16;  // more than 4 MiB
    TableOptions o = options();
    o.dim = kWide;
    o.initial = "uniform";
    o.scale = 1;
    Table table(o);
    std::vector<std::int64_t> ids(kCount);
    for (std::size_t i = 0; i < kCount; ++i) ids[i] = static_cast<std::int64_t>(i * 7 % 50021);
    const std::vector<float> gradients(kCount * kWide, 1.0f);
    table.push(ids.data(), kCount / 2, gradients.data(), {});  // some ids stay unseen
    AlignedBuffer buffer;
    buffer.fit((kCount + 1) * kWide * sizeof(float));
    auto* aligned = reinterpret_cast<float*>(buffer.data());
    std::vector<float> expected(kCount * kWide);
    for (std::size_t i = 0; i < kCount; i += 1000)
        table.pull(ids.data() + i, 1000, expected.data() + i * kWide);
    for (const std::size_t offset : {0u, 1u}) {
        table.pull(ids.data(), kCount, aligned + offset);
        CHECK(std::equal(expected.begin(), expected.end(), aligned + offset));
    }
}

TEST(a_capture_is_the_table_at_its_moment) {
    const TemporaryFolder folder;
    for (const std::uint64_t memory : {0u, 40000u}) {
        Table table(options(memory > 0 ? folder.path() : "", memory));
        std::map<std::int64_t, std::vector<float>> rows;
        for (std::uint64_t i = 0; i < 20; ++i) {
            Traffic(i, 700, 4000).push(table);
            Traffic(i, 700, 4000).add_to(rows);
        }
        auto capture = table.capture(-1);
        CHECK_THROWS(table.capture(-1), std::invalid_argument);
        CHECK_EQUAL(capture->summary().rows, rows.size());
        RowBatch first;
        CHECK(capture->next(10, first));
        for (std::uint64_t i = 20; i < 30; ++i) Traffic(i, 700, 8000).push(table);
        auto captured = read_all(*capture, 500);
        for (std::size_t i = 0; i < first.ids.size(); ++i)
            captured[first.ids[i]].assign(first.values.data() + i * kDim,
                                          first.values.data() + (i + 1) * kDim);
        CHECK(captured == rows);
        capture->finish(true);
        auto delta = table.capture(29);
        CHECK_EQUAL(delta->summary().rows, read_all(*delta, 100).size());
    }
}

TEST(what_was_removed_is_kept_for_a_delta_only) {
    Table table(options());
    const std::vector<std::int64_t> ids = {1, 2, 3, 4};
    const std::vector<float> zeros(ids.size() * kDim);
    const auto push = [&](Table& into) { into.push(ids.data(), ids.size(), zeros.data(), {}); };
    const auto removed = [](Table& from, bool ok) {
        const auto capture = from.capture(-1);
        capture->finish(ok);
        return capture->summary().removed.size();
    };
    push(table);
    table.remove(ids.data(), 1);
    CHECK_EQUAL(removed(table, false), 0u);
    table.remove(ids.data() + 1, 1);
    {
        const auto first = table.capture(-1);
        CHECK_EQUAL(first->summary().removed.size(), 0u);
        table.remove(ids.data() + 2, 1);
        first->finish(true);
    }
    table.remove(ids.data() + 3, 1);
    CHECK_EQUAL(removed(table, false), 2u);
    CHECK_EQUAL(removed(table, true), 2u);
    CHECK_EQUAL(removed(table, true), 0u);
    Table loaded(options());
    push(loaded);
    loaded.set_step(7);
    loaded.remove(ids.data(), 1);
    CHECK_EQUAL(removed(loaded, false), 1u);
    CHECK_EQUAL(removed(loaded, false), 1u);
}

TEST(what_was_removed_counts_as_memory) {
    Table table(options());
    table.set_step(1);
    const Traffic traffic(1, 20000, 1 << 30);
    traffic.push(table);
    const double before = table.stats().at("memory_bytes");
    table.remove(traffic.ids.data(), traffic.ids.size());
    CHECK(table.stats().at("memory_bytes") > before + 20000 * 16);
}

TEST(a_torn_cold_file_is_an_error_and_changes_nothing) {
    const TemporaryFolder folder;
    Table table(options(folder.path(), 40000));
    for (std::uint64_t i = 0; i < 20; ++i) Traffic(i, 700, 4000).push(table);
    table.drain();
    const int file = cold_descriptor(folder.path());
    CHECK(file >= 0);
    CHECK_EQUAL(ftruncate(file, 0), 0);
    const Traffic traffic(99, 700, 4000);
    std::vector<float> out(traffic.gradients.size());
    CHECK_THROWS(table.pull(traffic.ids.data(), traffic.ids.size(), out.data()), StoreError);
    CHECK_THROWS(traffic.push(table), StoreError);
    CHECK_EQUAL(table.step(), 20u);
    const Traffic fresh(1, 50, 1);  // what is in RAM goes on
    std::vector<std::int64_t> ids(50, -1);
    table.push(ids.data(), ids.size(), fresh.gradients.data(), {});
    CHECK_EQUAL(table.step(), 21u);
}

TEST(a_full_disk_is_said_and_costs_nothing_that_was_done) {
    const TemporaryFolder folder;
    Table table(options(folder.path(), 40000));
    std::map<std::int64_t, std::vector<float>> rows;
    std::signal(SIGXFSZ, SIG_IGN);
    rlimit before{}, small{};
    getrlimit(RLIMIT_FSIZE, &before);
    small = before;
    small.rlim_cur = 4096;
    setrlimit(RLIMIT_FSIZE, &small);
    std::uint64_t refused = 0;
    for (std::uint64_t i = 0; i < 20; ++i) {
        const std::uint64_t step = table.step();
        try {
            Traffic(i, 700, 4000).push(table);
            Traffic(i, 700, 4000).add_to(rows);
        } catch (const StoreError&) {
            ++refused;
            CHECK_EQUAL(table.step(), step);
        }
    }
    CHECK(refused > 0);
    CHECK(table.stats().at("cold_errors") > 0);
    CHECK(!table.cold_error().empty());
    check_rows(table, rows);
    setrlimit(RLIMIT_FSIZE, &before);
    for (std::uint64_t i = 20; i < 60; ++i) {
        Traffic(i, 700, 4000).push(table);
        Traffic(i, 700, 4000).add_to(rows);
    }
    CHECK(table.stats().at("cold_rows") > 0);
    check_rows(table, rows);
}

TEST(a_last_part_that_the_disk_refuses_is_kept_though_its_caller_has_gone_on) {
    const TemporaryFolder folder;
    Table table(options(folder.path(), 40000));
    std::map<std::int64_t, std::vector<float>> rows;
    std::signal(SIGXFSZ, SIG_IGN);
    rlimit before{}, small{};
    getrlimit(RLIMIT_FSIZE, &before);
    small = before;
    small.rlim_cur = 4096;
    setrlimit(RLIMIT_FSIZE, &small);
    std::int64_t batch = 0;
    for (bool refused = false; !refused && batch < 20; ++batch) {
        Traffic traffic(static_cast<std::uint64_t>(batch), 700, 4000);
        traffic.add_to(rows);
        table.announce(batch, 1, {});
        try {
            table.accumulate(batch, {0, 0}, traffic.ids.data(), 700, traffic.gradients.data());
        } catch (const StoreError&) {
            refused = true;
            CHECK_EQUAL(table.committed(), batch - 1);
        }
        std::fill(traffic.gradients.begin(), traffic.gradients.end(), 9.0f);
    }
    CHECK(batch < 20);
    setrlimit(RLIMIT_FSIZE, &before);
    table.announce(batch - 1, 1, {});  // tries again
    CHECK_EQUAL(table.committed(), batch - 1);
    check_rows(table, rows);
}

TEST(loading_ahead_goes_on_after_a_thread_that_could_not_be_started) {
    const TemporaryFolder folder;
    Table table(options(folder.path(), 400000));
    std::map<std::int64_t, std::vector<float>> rows;
    for (std::uint64_t i = 0; i < 20; ++i) {
        Traffic(i, 1000, 40000).push(table);
        Traffic(i, 1000, 40000).add_to(rows);
    }
    table.drain();
    const Traffic traffic(0, 1000, 40000);
    pthread_attr_t before, huge;
    CHECK_EQUAL(pthread_getattr_default_np(&before), 0);
    CHECK_EQUAL(pthread_attr_init(&huge), 0);
    CHECK_EQUAL(pthread_attr_setstacksize(&huge, std::size_t{1} << 50), 0);
    CHECK_EQUAL(pthread_setattr_default_np(&huge), 0);
    table.prefetch(traffic.ids.data(), traffic.ids.size());
    table.drain();
    CHECK_EQUAL(pthread_setattr_default_np(&before), 0);
    CHECK(!table.cold_error().empty());
    const double loaded = table.stats().at("loaded_ahead");
    table.prefetch(traffic.ids.data(), traffic.ids.size());
    table.drain();
    CHECK(table.stats().at("loaded_ahead") > loaded);
    check_rows(table, rows);
}

TEST(a_missing_folder_is_an_error) {
    CHECK_THROWS(Table(options("/proc/none/such", 40000)), StoreError);
    CHECK_THROWS(Table(options("", 40000)), std::invalid_argument);
}

TEST(parts_commit_in_order_whoever_brings_them) {
    Table table(options());
    std::vector<std::thread> threads;
    std::map<std::int64_t, std::vector<float>> rows;
    for (std::uint64_t i = 0; i < 40; ++i) Traffic(i, 300, 500).add_to(rows);
    for (std::uint64_t t = 0; t < 4; ++t)
        threads.emplace_back([&table, t] {
            for (std::int64_t batch = 0; batch < 10; ++batch) {
                const Traffic traffic(static_cast<std::uint64_t>(batch) * 4 + t, 300, 500);
                const PartKey key{static_cast<std::int64_t>(t), 0};
                table.accumulate(batch, key, traffic.ids.data(), 300, traffic.gradients.data());
                table.accumulate(batch, key, traffic.ids.data(), 300, traffic.gradients.data());
                table.announce(batch, 4, {});
                if (t == 0) CHECK(table.wait(batch + 1, 20.0));
            }
        });
    for (std::thread& thread : threads) thread.join();
    CHECK(table.wait(10, 20.0));
    CHECK_EQUAL(table.committed(), 9);
    CHECK_EQUAL(table.step(), 10u);
    check_rows(table, rows);
}

TEST(threads_pull_push_load_ahead_and_capture_at_once) {
    const TemporaryFolder folder;
    Table table(options(folder.path(), 60000));
    constexpr std::uint64_t kPushes = 25;
    const auto seed = [](std::uint64_t t, std::uint64_t i) { return t * kPushes + i; };
    std::vector<std::thread> threads;
    for (std::uint64_t t = 0; t < 2; ++t)
        threads.emplace_back([&, t] {
            for (std::uint64_t i = 0; i < kPushes; ++i) Traffic(seed(t, i), 500, 5000).push(table);
        });
    for (std::uint64_t t = 0; t < 2; ++t)
        threads.emplace_back([&, t] {
            std::vector<float> out(500 * kDim);
            for (std::uint64_t i = 0; i < kPushes; ++i) {
                const Traffic traffic(seed(t, i), 500, 5000);
                table.prefetch(traffic.ids.data(), traffic.ids.size());
                table.pull(traffic.ids.data(), traffic.ids.size(), out.data());
                table.stats();
            }
            table.drain();
        });
    threads.emplace_back([&] {
        for (int i = 0; i < 4; ++i) {
            const auto capture = table.capture(i % 2 == 0 ? -1 : 3);
            CHECK_EQUAL(read_all(*capture, 300).size(), capture->summary().rows);
            capture->finish(i % 2 == 0);
        }
    });
    for (std::thread& thread : threads) thread.join();
    std::map<std::int64_t, std::vector<float>> rows;
    for (std::uint64_t i = 0; i < 2 * kPushes; ++i) Traffic(i, 500, 5000).add_to(rows);
    check_rows(table, rows);
}
