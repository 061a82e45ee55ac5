#include "heterps/store/row_sums.hpp"

#define HETERPS_INLINE [[gnu::always_inline]] inline

namespace heterps::store {

namespace {

using Lanes [[gnu::vector_size(32), gnu::aligned(4)]] = float;

HETERPS_INLINE Lanes& lanes(float* at) { return *reinterpret_cast<Lanes*>(at); }
HETERPS_INLINE const Lanes& lanes(const float* at) { return *reinterpret_cast<const Lanes*>(at); }

// Rows of the caller need not begin with a cache line.
HETERPS_INLINE void fetch(const float* row, int dim) {
    __builtin_prefetch(row);
    __builtin_prefetch(row + dim - 1);
}

// A row of a usual width stays in registers until it is whole.
template <int Dim>
HETERPS_INLINE void add_up(const float* const* rows, std::size_t count, int, float* out) {
    Lanes sum[Dim / 8];
    for (int v = 0; v < Dim / 8; ++v) sum[v] = lanes(rows[0] + 8 * v);
    fetch(rows[kRowsAhead], Dim);
    for (std::size_t i = 1; i < count; ++i) {
        fetch(rows[i + kRowsAhead], Dim);
        for (int v = 0; v < Dim / 8; ++v) sum[v] = sum[v] + lanes(rows[i] + 8 * v);
    }
    for (int v = 0; v < Dim / 8; ++v) lanes(out + 8 * v) = sum[v];
}

template <>
HETERPS_INLINE void add_up<0>(const float* const* rows, std::size_t count, int dim, float* out) {
    for (int c = 0; c < dim; ++c) out[c] = rows[0][c];
    fetch(rows[kRowsAhead], dim);
    for (std::size_t i = 1; i < count; ++i) {
        fetch(rows[i + kRowsAhead], dim);
        const float* __restrict row = rows[i];
        for (int c = 0; c < dim; ++c) out[c] = out[c] + row[c];
    }
}

template <int Dim>
void portable_sum(const float* const* rows, std::size_t count, int dim, float* out) {
    add_up<Dim>(rows, count, dim, out);
}

#if defined(__x86_64__)
template <int Dim>
[[gnu::target("avx2")]] void wide_sum(const float* const* rows, std::size_t count, int dim,
                                      float* out) {
    add_up<Dim>(rows, count, dim, out);
}

template <int Dim>
SumRows choose(bool portable) {
    const bool wide = !portable && __builtin_cpu_supports("avx2");
    return wide ? &wide_sum<Dim> : &portable_sum<Dim>;
}
#else
template <int Dim>
SumRows choose(bool) {
    return &portable_sum<Dim>;
}
#endif

}  // namespace

SumRows sum_rows_function(int dim, bool portable) {
    switch (dim) {
        case 8:
            return choose<8>(portable);
        case 16:
            return choose<16>(portable);
        case 32:
            return choose<32>(portable);
        default:
            return choose<0>(portable);
    }
}

}  // namespace heterps::store
