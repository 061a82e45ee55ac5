// Sums of rows, for the best instruction set that this machine has; the same bits on all of them.
#pragma once

#include <cstddef>

namespace heterps::store {

// out = rows[0] + rows[1] + … in that order, of `count` >= 1 rows. While one is added, a later one
// is fetched: `rows` must be readable for kRowsAhead pointers beyond `count`.
using SumRows = void (*)(const float* const* rows, std::size_t count, int dim, float* out);

constexpr std::size_t kRowsAhead = 16;

SumRows sum_rows_function(int dim, bool portable = false);

}  // namespace heterps::store
