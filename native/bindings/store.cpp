// heterps.ps._native: batched calls over arrays that the caller owns.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>

#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "heterps/rows/rows.hpp"
#include "heterps/store/dense.hpp"
#include "heterps/store/half.hpp"
#include "heterps/store/hash.hpp"
#include "heterps/store/routing.hpp"
#include "heterps/store/table.hpp"

namespace nb = nanobind;
using namespace nb::literals;
using namespace heterps::store;

namespace {

template <class T, int Rank>
using Array = nb::ndarray<T, nb::ndim<Rank>, nb::c_contig, nb::device::cpu>;
using Ids = Array<const std::int64_t, 1>;
using Floats = Array<const float, 2>;
using OutFloats = Array<float, 2>;
using Counts = Array<const std::uint32_t, 1>;
using Halves = Array<const std::uint16_t, 1>;
using Flat = Array<const float, 1>;
using Lr = std::optional<double>;

// The vector becomes the memory of a numpy array.
template <class T>
nb::object to_numpy(std::vector<T> values, std::size_t columns = 0) {
    auto* owned = new std::vector<T>(std::move(values));
    nb::capsule owner(owned, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
    if (columns == 0)
        return nb::cast(nb::ndarray<nb::numpy, T>(owned->data(), {owned->size()}, owner));
    return nb::cast(
        nb::ndarray<nb::numpy, T>(owned->data(), {owned->size() / columns, columns}, owner));
}

void expect(bool fits, const char* problem) {
    if (!fits) throw std::invalid_argument(problem);
}

template <class Rows>
void expect_rows(const Rows& rows, std::size_t count, int dim, const char* name) {
    if (rows.shape(0) != count || rows.shape(1) != static_cast<std::size_t>(dim))
        throw std::invalid_argument(std::string(name) + " must be [" + std::to_string(count) +
                                    ", " + std::to_string(dim) + "], not [" +
                                    std::to_string(rows.shape(0)) + ", " +
                                    std::to_string(rows.shape(1)) + "]");
}

RuleOptions rule_options(const nb::dict& given) {
    RuleOptions options;
    for (const auto& [key, value] : given) {
        const auto name = nb::cast<std::string>(key);
        double* target = name == "eps"                   ? &options.eps
                         : name == "initial_accumulator" ? &options.initial_accumulator
                         : name == "beta1"               ? &options.beta1
                         : name == "beta2"               ? &options.beta2
                         : name == "beta"                ? &options.beta
                         : name == "l1"                  ? &options.l1
                         : name == "l2"                  ? &options.l2
                                                         : nullptr;
        if (target == nullptr) throw std::invalid_argument("unknown rule option '" + name + "'");
        *target = nb::cast<double>(value);
    }
    return options;
}

// Adam's usual epsilon differs from Adagrad's.
RuleOptions rule_options(const std::string& rule, const nb::object& given) {
    const nb::dict dict = given.is_none() ? nb::dict() : nb::cast<nb::dict>(given);
    RuleOptions options = rule_options(dict);
    if (rule == "adam" && !dict.contains("eps")) options.eps = 1e-8;
    return options;
}

void make_table(Table* self, int dim, std::string rule, double lr, nb::object options,
                std::string initial, double scale, std::uint64_t seed, int threads,
                std::uint64_t memory_bytes, std::string path, std::uint32_t admission,
                std::uint32_t evict_after, std::uint64_t max_rows, std::uint32_t staleness) {
    TableOptions o;
    o.rule_options = rule_options(rule, options);
    o.dim = dim;
    o.rule = std::move(rule);
    o.lr = lr;
    o.initial = std::move(initial);
    o.scale = scale;
    o.seed = seed;
    o.threads = threads;
    o.memory_bytes = memory_bytes;
    o.path = std::move(path);
    o.admission = admission;
    o.evict_after = evict_after;
    o.max_rows = max_rows;
    o.staleness = staleness;
    new (self) Table(o);
}

void pull(Table& table, Ids ids, OutFloats out) {
    expect_rows(out, ids.shape(0), table.layout().dim, "out");
    nb::gil_scoped_release release;
    table.pull(ids.data(), ids.shape(0), out.data());
}

void push(Table& table, Ids ids, Floats grads, Lr lr) {
    expect_rows(grads, ids.shape(0), table.layout().dim, "grads");
    nb::gil_scoped_release release;
    table.push(ids.data(), ids.shape(0), grads.data(), lr);
}

void announce(Table& table, std::int64_t batch, std::int64_t parts, Lr lr) {
    expect(parts >= 0, "parts must not be negative");
    nb::gil_scoped_release release;
    table.announce(batch, static_cast<std::size_t>(parts), lr);
}

bool accumulate(Table& table, std::int64_t batch, std::int64_t micro_batch, std::int64_t layer,
                Ids ids, Floats grads) {
    expect_rows(grads, ids.shape(0), table.layout().dim, "grads");
    nb::gil_scoped_release release;
    return table.accumulate(batch, {micro_batch, layer}, ids.data(), ids.shape(0), grads.data());
}

void restore(Table& table, Ids ids, Floats values, Floats state, Counts frequency,
             Counts last_seen) {
    const std::size_t count = ids.shape(0);
    expect_rows(values, count, table.layout().dim, "values");
    expect_rows(state, count, table.layout().state, "state");
    expect(frequency.shape(0) == count && last_seen.shape(0) == count,
           "frequency and last_seen must have one entry per id");
    nb::gil_scoped_release release;
    table.restore(ids.data(), count, values.data(), state.data(), frequency.data(),
                  last_seen.data());
}

void restore_pending(Table& table, Ids ids, Counts counts, Counts last_seen) {
    expect(counts.shape(0) == ids.shape(0) && last_seen.shape(0) == ids.shape(0),
           "counts and last_seen must have one entry per id");
    nb::gil_scoped_release release;
    table.restore_pending(ids.data(), ids.shape(0), counts.data(), last_seen.data());
}

nb::dict stats(const Table& table) {
    nb::dict result;
    for (const auto& [name, value] : table.stats()) {
        const bool seconds = name.size() > 2 && name.compare(name.size() - 2, 2, "_s") == 0;
        if (seconds)
            result[name.c_str()] = value;
        else
            result[name.c_str()] = static_cast<std::int64_t>(value);
    }
    return result;
}

nb::object next(Capture& capture, std::size_t max_rows) {
    RowBatch batch;
    bool more;
    {
        nb::gil_scoped_release release;
        more = capture.next(max_rows, batch);
    }
    if (!more) return nb::none();
    const std::size_t count = batch.ids.size();
    const auto state_width = static_cast<std::size_t>(capture.layout().state);
    nb::object state =
        state_width > 0 ? to_numpy(std::move(batch.state), state_width)
                        : nb::cast(nb::ndarray<nb::numpy, float>(nullptr, {count, std::size_t{0}}));
    return nb::make_tuple(
        to_numpy(std::move(batch.ids)),
        to_numpy(std::move(batch.values), static_cast<std::size_t>(capture.layout().dim)), state,
        to_numpy(std::move(batch.frequency)), to_numpy(std::move(batch.last_seen)));
}

template <class Field>
nb::object pending(const Capture& capture, Field Sightings::Entry::* field) {
    std::vector<Field> values;
    for (const Sightings::Entry& entry : capture.summary().pending) values.push_back(entry.*field);
    return to_numpy(std::move(values));
}

void bind_capture(nb::module_& m) {
    nb::class_<Capture>(m, "Capture")
        .def("next", &next, "max_rows"_a)
        .def("finish", &Capture::finish, "ok"_a, nb::call_guard<nb::gil_scoped_release>())
        .def_prop_ro("rows", [](const Capture& c) { return c.summary().rows; })
        .def_prop_ro("step", [](const Capture& c) { return c.summary().step; })
        .def_prop_ro("committed", [](const Capture& c) { return c.summary().committed; })
        .def_prop_ro("removed", [](const Capture& c) { return to_numpy(c.summary().removed); })
        .def_prop_ro("bucket_counts",
                     [](const Capture& c) {
                         const auto& counts = c.summary().bucket_counts;
                         return to_numpy(std::vector<std::uint64_t>(counts.begin(), counts.end()));
                     })
        .def_prop_ro("pending_ids",
                     [](const Capture& c) { return pending(c, &Sightings::Entry::id); })
        .def_prop_ro("pending_counts",
                     [](const Capture& c) { return pending(c, &Sightings::Entry::count); })
        .def_prop_ro("pending_last_seen",
                     [](const Capture& c) { return pending(c, &Sightings::Entry::last_seen); });
}

void bind_table(nb::module_& m) {
    using Release = nb::call_guard<nb::gil_scoped_release>;
    nb::class_<Table>(m, "Table")
        .def("__init__", &make_table, nb::kw_only(), "dim"_a, "rule"_a, "lr"_a,
             "options"_a = nb::none(), "initial"_a = "zeros", "scale"_a = 0.0, "seed"_a = 0,
             "threads"_a = 0, "memory_bytes"_a = 0, "path"_a = "", "admission"_a = 0,
             "evict_after"_a = 0, "max_rows"_a = 0, "staleness"_a = 0)
        .def("pull", &pull, "ids"_a.noconvert(), "out"_a.noconvert())
        .def("push", &push, "ids"_a.noconvert(), "grads"_a.noconvert(), "lr"_a = nb::none())
        .def("announce", &announce, "batch"_a, "parts"_a, "lr"_a = nb::none())
        .def("accumulate", &accumulate, "batch"_a, "micro_batch"_a, "layer"_a, "ids"_a.noconvert(),
             "grads"_a.noconvert())
        .def("wait", &Table::wait, "batch"_a, "timeout_s"_a = 0.0, Release())
        .def(
            "prefetch",
            [](Table& table, Ids ids) {
                nb::gil_scoped_release release;
                table.prefetch(ids.data(), ids.shape(0));
            },
            "ids"_a.noconvert())
        .def("drain", &Table::drain, Release())
        .def_prop_rw("committed", &Table::committed, &Table::set_committed, Release())
        .def_prop_rw("lr", &Table::lr, &Table::set_lr, Release())
        .def_prop_rw("step", &Table::step, &Table::set_step, Release())
        .def_prop_ro("dim", [](const Table& table) { return table.layout().dim; })
        .def_prop_ro("state_width", [](const Table& table) { return table.layout().state; })
        .def("__len__", &Table::size, Release())
        .def("stats", &stats)
        .def_prop_ro("cold_error", &Table::cold_error, Release())
        .def("capture", &Table::capture, "since_step"_a = -1, nb::keep_alive<0, 1>(), Release())
        .def("restore", &restore, "ids"_a.noconvert(), "values"_a.noconvert(),
             "state"_a.noconvert(), "frequency"_a.noconvert(), "last_seen"_a.noconvert())
        .def("restore_pending", &restore_pending, "ids"_a.noconvert(), "counts"_a.noconvert(),
             "last_seen"_a.noconvert())
        .def(
            "remove",
            [](Table& table, Ids ids) {
                nb::gil_scoped_release release;
                table.remove(ids.data(), ids.shape(0));
            },
            "ids"_a.noconvert());
}

void bind_dense(nb::module_& m) {
    using Release = nb::call_guard<nb::gil_scoped_release>;
    nb::class_<Dense>(m, "Dense")
        .def(
            "__init__",
            [](Dense* self, Floats values, const std::string& rule, double lr, nb::object options) {
                new (self) Dense(values.data(), values.shape(0), static_cast<int>(values.shape(1)),
                                 rule, rule_options(rule, options), lr);
            },
            nb::kw_only(), "values"_a.noconvert(), "rule"_a, "lr"_a, "options"_a = nb::none())
        .def(
            "pull",
            [](const Dense& dense, OutFloats out) {
                expect_rows(out, dense.rows(), dense.dim(), "out");
                nb::gil_scoped_release release;
                dense.pull(out.data());
            },
            "out"_a.noconvert())
        .def(
            "push",
            [](Dense& dense, Floats grads, Lr lr) {
                expect_rows(grads, dense.rows(), dense.dim(), "grads");
                nb::gil_scoped_release release;
                dense.push(grads.data(), lr);
            },
            "grads"_a.noconvert(), "lr"_a = nb::none())
        .def(
            "read_state",
            [](const Dense& dense, OutFloats out) {
                expect_rows(out, dense.rows(), dense.state_width(), "out");
                nb::gil_scoped_release release;
                dense.read_state(out.data());
            },
            "out"_a.noconvert())
        .def(
            "restore",
            [](Dense& dense, Floats values, Floats state, std::uint64_t step) {
                expect_rows(values, dense.rows(), dense.dim(), "values");
                expect_rows(state, dense.rows(), dense.state_width(), "state");
                nb::gil_scoped_release release;
                dense.restore(values.data(), state.data(), step);
            },
            "values"_a.noconvert(), "state"_a.noconvert(), "step"_a)
        .def_prop_rw("lr", &Dense::lr, &Dense::set_lr, Release())
        .def_prop_rw("step", &Dense::step, &Dense::set_step, Release())
        .def_prop_ro("rows", &Dense::rows)
        .def_prop_ro("dim", &Dense::dim)
        .def_prop_ro("state_width", &Dense::state_width);
}

nb::object buckets(Ids ids) {
    std::vector<std::uint16_t> result(ids.shape(0));
    {
        nb::gil_scoped_release release;
        for (std::size_t i = 0; i < result.size(); ++i) result[i] = bucket_of(ids.data()[i]);
    }
    return to_numpy(std::move(result));
}

nb::object route_ids(Ids ids, std::int64_t shards, bool distinct) {
    Route result;
    {
        nb::gil_scoped_release release;
        result = route(ids.data(), ids.shape(0), shards, distinct);
    }
    return nb::make_tuple(to_numpy(std::move(result.ids)), to_numpy(std::move(result.offsets)),
                          to_numpy(std::move(result.inverse)));
}

void initial_rows(Ids ids, const std::string& initial, double scale, std::uint64_t seed,
                  OutFloats out) {
    const auto dim = static_cast<int>(out.shape(1));
    expect_rows(out, ids.shape(0), dim, "out");
    const Initial filler(initial_kind(initial), scale, seed);
    nb::gil_scoped_release release;
    for (std::size_t i = 0; i < ids.shape(0); ++i)
        filler.fill(ids.data()[i], out.data() + i * out.shape(1), dim);
}

template <void (*Convert)(const float*, std::size_t, std::uint16_t*)>
void narrow(Flat values, Array<std::uint16_t, 1> out) {
    expect(out.shape(0) == values.shape(0), "out must be as long as values");
    nb::gil_scoped_release release;
    Convert(values.data(), values.shape(0), out.data());
}

template <void (*Convert)(const std::uint16_t*, std::size_t, float*)>
void widen(Halves values, Array<float, 1> out) {
    expect(out.shape(0) == values.shape(0), "out must be as long as values");
    nb::gil_scoped_release release;
    Convert(values.data(), values.shape(0), out.data());
}

void bind_routing(nb::module_& m) {
    m.def("bucket_of", &buckets, "ids"_a.noconvert());
    m.def("route", &route_ids, "ids"_a.noconvert(), "shards"_a, "distinct"_a = false);
    m.def("initial_rows", &initial_rows, "ids"_a.noconvert(), "initial"_a, "scale"_a, "seed"_a,
          "out"_a.noconvert());
    m.def(
        "sum_duplicates",
        [](Floats grads, Ids inverse, OutFloats sums) {
            expect_rows(grads, inverse.shape(0), static_cast<int>(sums.shape(1)), "grads");
            nb::gil_scoped_release release;
            heterps::rows::sum_by(inverse.data(), grads.data(), inverse.shape(0), sums.shape(1),
                                  sums.data(), sums.shape(0));
        },
        "grads"_a.noconvert(), "inverse"_a.noconvert(), "sums"_a.noconvert());
    m.def(
        "gather",
        [](Floats rows, Ids inverse, OutFloats out) {
            expect_rows(out, inverse.shape(0), static_cast<int>(rows.shape(1)), "out");
            nb::gil_scoped_release release;
            heterps::rows::expand(rows.data(), rows.shape(0), inverse.data(), inverse.shape(0),
                                  rows.shape(1), out.data());
        },
        "rows"_a.noconvert(), "inverse"_a.noconvert(), "out"_a.noconvert());
    m.def("to_bf16", &narrow<&to_bf16>, "values"_a.noconvert(), "out"_a.noconvert());
    m.def("from_bf16", &widen<&from_bf16>, "values"_a.noconvert(), "out"_a.noconvert());
    m.def("to_fp16", &narrow<&to_fp16>, "values"_a.noconvert(), "out"_a.noconvert());
    m.def("from_fp16", &widen<&from_fp16>, "values"_a.noconvert(), "out"_a.noconvert());
}

}  // namespace

NB_MODULE(_native, m) {
    nb::exception<StoreError>(m, "StoreError");
    bind_capture(m);
    bind_table(m);
    bind_dense(m);
    bind_routing(m);
}
