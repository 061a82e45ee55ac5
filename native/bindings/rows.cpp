// Python module heterps.models._native: the functions of heterps/rows/rows.hpp.
#include "heterps/rows/rows.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <limits>
#include <stdexcept>

namespace nb = nanobind;
using namespace nb::literals;

namespace {

// Arguments of another type or layout are refused, never converted: results are written in place.
template <class T, std::size_t Rank>
using Array = nb::ndarray<T, nb::ndim<Rank>, nb::c_contig, nb::device::cpu>;
using Ids = Array<const std::int64_t, 1>;
using Floats = Array<const float, 2>;

void expect(bool holds, const char* problem) {
    if (!holds) throw std::invalid_argument(problem);
}

std::size_t find_distinct(Ids ids, Array<std::int64_t, 1> distinct,
                          Array<std::int64_t, 1> inverse) {
    const std::size_t count = ids.shape(0);
    expect(count < std::numeric_limits<std::uint32_t>::max(), "ids: too many for one call");
    expect(distinct.shape(0) == count && inverse.shape(0) == count,
           "distinct and inverse must be as long as ids");
    nb::gil_scoped_release release;
    return heterps::rows::find_distinct(ids.data(), count, distinct.data(), inverse.data());
}

void expand(Floats values, Ids inverse, Array<float, 2> out) {
    expect(out.shape(0) == inverse.shape(0) && out.shape(1) == values.shape(1),
           "out must have a row of values for each index");
    nb::gil_scoped_release release;
    heterps::rows::expand(values.data(), values.shape(0), inverse.data(), inverse.shape(0),
                          values.shape(1), out.data());
}

void sum_by(Ids inverse, Floats grads, Array<float, 2> sums) {
    expect(grads.shape(0) == inverse.shape(0) && grads.shape(1) == sums.shape(1),
           "grads must have a row as wide as sums for each index");
    nb::gil_scoped_release release;
    heterps::rows::sum_by(inverse.data(), grads.data(), grads.shape(0), grads.shape(1), sums.data(),
                          sums.shape(0));
}

}  // namespace

NB_MODULE(_native, m) {
    m.def("find_distinct", &find_distinct, "ids"_a.noconvert(), "distinct"_a.noconvert(),
          "inverse"_a.noconvert());
    m.def("expand", &expand, "values"_a.noconvert(), "inverse"_a.noconvert(), "out"_a.noconvert());
    m.def("sum_by", &sum_by, "inverse"_a.noconvert(), "grads"_a.noconvert(), "sums"_a.noconvert());
}
