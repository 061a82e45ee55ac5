// heterps.planning._native: batched calls over arrays that the caller owns.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <limits>
#include <memory>
#include <vector>

#include "heterps/planning/model.hpp"
#include "heterps/planning/provision.hpp"
#include "heterps/planning/search.hpp"

namespace nb = nanobind;
using namespace heterps::planning;

namespace {

using Table = nb::ndarray<const double, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Figures = nb::ndarray<const double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Counts = nb::ndarray<const std::int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Reach = nb::ndarray<const std::int32_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Runs = nb::ndarray<const std::uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Assignments = nb::ndarray<const std::int32_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Assignment = nb::ndarray<const std::int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using Out = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using OutUnits = nb::ndarray<std::int64_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

template <class Array>
auto copy(const Array& array) {
    using Value = std::remove_const_t<typename Array::Scalar>;
    return std::vector<Value>(array.data(), array.data() + array.size());
}

struct Problem {
    Model model;
    std::vector<std::uint8_t> runs;
};

void check_assignments(const Model& model, const std::int32_t* values, std::size_t count,
                       std::size_t width) {
    if (width != static_cast<std::size_t>(model.layers()))
        throw std::invalid_argument("one type per layer");
    for (std::size_t i = 0; i < count * width; ++i)
        if (values[i] < 0 || values[i] >= model.types())
            throw std::invalid_argument("no such type");
}

void provision(const Problem& problem, Assignments assignments, Out<std::int32_t> status,
               Out<double> cost, Out<double> period, Out<double> violation, OutUnits units,
               bool fastest, double worth) {
    const std::size_t count = assignments.shape(0), width = assignments.shape(1);
    check_assignments(problem.model, assignments.data(), count, width);
    if (status.size() != count || cost.size() != count || period.size() != count ||
        violation.size() != count || units.shape(0) != count || units.shape(1) != width)
        throw std::invalid_argument("outputs must match the assignments");
    nb::gil_scoped_release release;
    Provisioner provisioner(problem.model, problem.runs);
    std::vector<std::int64_t> stage_units;
    for (std::size_t i = 0; i < count; ++i) {
        Provision p = provisioner.cheapest(assignments.data() + i * width, stage_units, worth);
        if (fastest) p.period = provisioner.fastest(assignments.data() + i * width, stage_units);
        status.data()[i] = static_cast<std::int32_t>(p.status);
        cost.data()[i] = p.cost;
        period.data()[i] = p.period;
        violation.data()[i] = p.violation;
        std::int64_t* row = units.data() + i * width;
        std::fill(row, row + width, 0);
        std::copy(stage_units.begin(), stage_units.end(), row);
    }
}

// An error in the test ends the search too; it must not unwind through half a step.
bool asked_to_stop(const nb::object& stop) {
    nb::gil_scoped_acquire acquire;
    try {
        return nb::cast<bool>(stop());
    } catch (nb::python_error& error) {
        error.discard_as_unraisable("heterps.planning: the stop test");
        return true;
    }
}

}  // namespace

NB_MODULE(_native, m) {
    nb::class_<Problem>(m, "Problem")
        .def(
            "__init__",
            [](Problem* self, Table compute, Table alpha, Table comm, Table beta, Table sync,
               Table transfer, Table transfer_beta, Reach reach, Runs runs, Figures price,
               Counts limit, double overhead, double max_period) {
                LayerTimes times{copy(compute), copy(alpha),    copy(comm),         copy(beta),
                                 copy(sync),    copy(transfer), copy(transfer_beta)};
                new (self) Problem{
                    Model(static_cast<int>(compute.shape(0)), static_cast<int>(compute.shape(1)),
                          times, copy(reach), copy(price), copy(limit), overhead, max_period),
                    copy(runs)};
                if (self->runs.size() != reach.size())
                    throw std::invalid_argument("runs must be [layers, types]");
            },
            nb::arg("compute").noconvert(), nb::arg("alpha").noconvert(),
            nb::arg("comm").noconvert(), nb::arg("beta").noconvert(), nb::arg("sync").noconvert(),
            nb::arg("transfer").noconvert(), nb::arg("transfer_beta").noconvert(),
            nb::arg("reach").noconvert(), nb::arg("runs").noconvert(), nb::arg("price").noconvert(),
            nb::arg("limit").noconvert(), nb::arg("overhead"), nb::arg("max_period"))
        .def("provision", &provision, nb::arg("assignments").noconvert(),
             nb::arg("status").noconvert(), nb::arg("cost").noconvert(),
             nb::arg("period").noconvert(), nb::arg("violation").noconvert(),
             nb::arg("units").noconvert(), nb::arg("fastest") = false,
             nb::arg("worth") = std::numeric_limits<double>::infinity());

    nb::class_<Search>(m, "Search")
        .def(
            "__init__",
            [](Search* self, const Problem& problem) {
                new (self) Search(problem.model, problem.runs);
            },
            nb::arg("problem"), nb::keep_alive<1, 2>())
        .def(
            "offer",
            [](Search& self, const Problem& problem, Assignments assignments) {
                check_assignments(problem.model, assignments.data(), assignments.shape(0),
                                  assignments.shape(1));
                nb::gil_scoped_release release;
                bool better = false;
                for (std::size_t i = 0; i < assignments.shape(0); ++i)
                    better |= self.offer(assignments.data() + i * assignments.shape(1));
                return better;
            },
            nb::arg("problem"), nb::arg("assignments").noconvert())
        .def(
            "run",
            [](Search& self, std::int64_t work, nb::object stop) {
                std::function<bool()> test;
                if (!stop.is_none()) test = [&stop] { return asked_to_stop(stop); };
                nb::gil_scoped_release release;
                return self.run(work, std::move(test));
            },
            nb::arg("work"), nb::arg("stop") = nb::none())
        .def(
            "shortest_period",
            [](Search& self, double precision, std::int64_t label_cap) {
                std::vector<std::int32_t> assignment;
                double period;
                {
                    nb::gil_scoped_release release;
                    period = self.shortest_period(assignment, precision, label_cap);
                }
                return nb::make_tuple(period, assignment);
            },
            nb::arg("precision") = 0.0, nb::arg("label_cap") = 100'000)
        .def("outlook",
             [](Search& self) {
                 Search::Outlook outlook;
                 {
                     nb::gil_scoped_release release;
                     outlook = self.outlook();
                 }
                 return nb::make_tuple(outlook.period, outlook.cost, outlook.forced);
             })
        .def_prop_ro("found", &Search::found)
        .def_prop_ro("cost", &Search::cost)
        .def_prop_ro("lower_bound", &Search::lower_bound)
        .def_prop_ro("assignment", [](const Search& self) { return self.assignment(); })
        .def_prop_ro("intervals", [](const Search& self) { return self.statistics().intervals; })
        .def_prop_ro("labels", [](const Search& self) { return self.statistics().labels; })
        .def_prop_ro("evaluations",
                     [](const Search& self) { return self.statistics().evaluations; })
        .def_prop_ro("work", [](const Search& self) { return self.statistics().work; });
}
