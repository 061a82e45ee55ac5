#include "heterps/store/rules.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>

#define HETERPS_INLINE [[gnu::always_inline]] inline

namespace heterps::store {

namespace {

// A fixed width (`Dim` > 0) lets the compiler unroll the loops of common widths.
template <int Dim>
HETERPS_INLINE int width(const RuleStep& step) {
    return Dim > 0 ? Dim : step.dim;
}

struct Sgd {
    template <int Dim>
    HETERPS_INLINE static void apply(const RuleStep& step, float* __restrict w, float*,
                                     const float* __restrict g) {
        for (int c = 0; c < width<Dim>(step); ++c) w[c] = w[c] - step.lr * g[c];
    }
};

struct Adagrad {
    template <int Dim>
    HETERPS_INLINE static void apply(const RuleStep& step, float* __restrict w, float* __restrict s,
                                     const float* __restrict g) {
        for (int c = 0; c < width<Dim>(step); ++c) {
            s[c] = s[c] + g[c] * g[c];
            w[c] = w[c] - step.lr * (g[c] / (std::sqrt(s[c]) + step.eps));
        }
    }
};

// Eight lanes, added up in a fixed order: the same bits at any vector width.
using Lanes = float __attribute__((vector_size(32)));

template <int Dim>
HETERPS_INLINE float mean_square(const RuleStep& step, const float* __restrict g) {
    const int dim = width<Dim>(step);
    Lanes lane = {}, part;
    int c = 0;
    for (; c + 8 <= dim; c += 8) {
        std::memcpy(&part, g + c, sizeof part);
        lane = lane + part * part;
    }
    for (int k = 0; c + k < dim; ++k) lane[k] = lane[k] + g[c + k] * g[c + k];
    const float total =
        ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
    return total / static_cast<float>(dim);
}

struct RowwiseAdagrad {
    template <int Dim>
    HETERPS_INLINE static void apply(const RuleStep& step, float* __restrict w, float* __restrict s,
                                     const float* __restrict g) {
        *s = *s + mean_square<Dim>(step, g);
        const float size = step.lr / (std::sqrt(*s) + step.eps);
        for (int c = 0; c < width<Dim>(step); ++c) w[c] = w[c] - size * g[c];
    }
};

struct Adam {
    template <int Dim>
    HETERPS_INLINE static void apply(const RuleStep& step, float* __restrict w,
                                     float* __restrict state, const float* __restrict g) {
        float* __restrict m = state;
        float* __restrict v = state + width<Dim>(step);
        for (int c = 0; c < width<Dim>(step); ++c) {
            m[c] = m[c] + step.rest1 * (g[c] - m[c]);
            v[c] = v[c] + step.rest2 * (g[c] * g[c] - v[c]);
            w[c] = w[c] - step.size * (m[c] / (std::sqrt(v[c]) + step.eps));
        }
    }
};

struct Ftrl {
    template <int Dim>
    HETERPS_INLINE static void apply(const RuleStep& step, float* __restrict w,
                                     float* __restrict state, const float* __restrict g) {
        float* __restrict z = state;
        float* __restrict n = state + width<Dim>(step);
        for (int c = 0; c < width<Dim>(step); ++c) {
            const float sum = n[c] + g[c] * g[c];
            const float root = std::sqrt(sum);
            const float sigma = (root - std::sqrt(n[c])) / step.lr;
            z[c] = (z[c] + g[c]) - sigma * w[c];
            n[c] = sum;
            const float shrunk = z[c] - std::copysign(step.l1, z[c]);
            const float weight = -shrunk / ((step.beta + root) / step.lr + step.l2);
            w[c] = std::fabs(z[c]) <= step.l1 ? 0.0f : weight;
        }
    }
};

template <class R, int Dim>
void portable(const RuleStep& step, float* row, float* state, const float* gradient) {
    R::template apply<Dim>(step, row, state, gradient);
}

#if defined(__x86_64__)
// AVX2 without FMA: contraction would change the results.
template <class R, int Dim>
[[gnu::target("avx2")]] void wide(const RuleStep& step, float* row, float* state,
                                  const float* gradient) {
    R::template apply<Dim>(step, row, state, gradient);
}

bool has_wide() { return __builtin_cpu_supports("avx2"); }

template <class R, int Dim>
Rule::Apply choose(bool portable_only) {
    return !portable_only && has_wide() ? &wide<R, Dim> : &portable<R, Dim>;
}
#else
template <class R, int Dim>
Rule::Apply choose(bool) {
    return &portable<R, Dim>;
}
#endif

template <class R>
Rule::Apply choose(int dim, bool portable_only) {
    switch (dim) {
        case 8:
            return choose<R, 8>(portable_only);
        case 16:
            return choose<R, 16>(portable_only);
        case 32:
            return choose<R, 32>(portable_only);
        case 64:
            return choose<R, 64>(portable_only);
        default:
            return choose<R, 0>(portable_only);
    }
}

RuleKind rule_kind(const std::string& name) {
    if (name == "sgd") return RuleKind::kSgd;
    if (name == "adagrad") return RuleKind::kAdagrad;
    if (name == "rowwise_adagrad") return RuleKind::kRowwiseAdagrad;
    if (name == "adam") return RuleKind::kAdam;
    if (name == "ftrl") return RuleKind::kFtrl;
    throw std::invalid_argument("unknown rule '" + name +
                                "' (known: adagrad, adam, ftrl, rowwise_adagrad, sgd)");
}

}  // namespace

Rule::Rule(const std::string& name, RuleOptions options)
    : kind_(rule_kind(name)), options_(options) {}

int Rule::state_width(int dim) const {
    switch (kind_) {
        case RuleKind::kSgd:
            return 0;
        case RuleKind::kRowwiseAdagrad:
            return 1;
        case RuleKind::kAdagrad:
            return dim;
        case RuleKind::kAdam:
        case RuleKind::kFtrl:
            return 2 * dim;
    }
    return 0;
}

void Rule::start(float* state, int dim) const {
    const bool adagrad = kind_ == RuleKind::kAdagrad || kind_ == RuleKind::kRowwiseAdagrad;
    const float value = adagrad ? static_cast<float>(options_.initial_accumulator) : 0.0f;
    std::fill(state, state + state_width(dim), value);
}

RuleStep Rule::at(double lr, std::uint64_t step, int dim) const {
    const double t = static_cast<double>(step);
    RuleStep r{};
    r.lr = static_cast<float>(lr);
    r.eps = static_cast<float>(options_.eps);
    r.rest1 = static_cast<float>(1.0 - options_.beta1);
    r.rest2 = static_cast<float>(1.0 - options_.beta2);
    if (kind_ == RuleKind::kAdam)
        r.size = static_cast<float>(lr * std::sqrt(1.0 - std::pow(options_.beta2, t)) /
                                    (1.0 - std::pow(options_.beta1, t)));
    r.beta = static_cast<float>(options_.beta);
    r.l1 = static_cast<float>(options_.l1);
    r.l2 = static_cast<float>(options_.l2);
    r.dim = dim;
    return r;
}

Rule::Apply Rule::function(int dim, bool portable) const {
    switch (kind_) {
        case RuleKind::kSgd:
            return choose<Sgd>(dim, portable);
        case RuleKind::kAdagrad:
            return choose<Adagrad>(dim, portable);
        case RuleKind::kRowwiseAdagrad:
            return choose<RowwiseAdagrad>(dim, portable);
        case RuleKind::kAdam:
            return choose<Adam>(dim, portable);
        case RuleKind::kFtrl:
            return choose<Ftrl>(dim, portable);
    }
    return nullptr;
}

}  // namespace heterps::store
