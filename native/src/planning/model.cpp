#include "heterps/planning/model.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

namespace heterps::planning {

Model::Model(int layers, int types, const LayerTimes& times, std::vector<int> reach,
             std::vector<double> price, std::vector<std::int64_t> limit, double overhead,
             double max_period)
    : layers_(layers),
      types_(types),
      reach_(std::move(reach)),
      price_(std::move(price)),
      limit_(std::move(limit)),
      overhead_(overhead),
      max_period_(max_period) {
    const auto cells = static_cast<std::size_t>(layers) * static_cast<std::size_t>(types);
    if (layers < 1 || types < 1) throw std::invalid_argument("a model has layers and types");
    for (const auto* v : {&times.compute, &times.alpha, &times.comm, &times.beta, &times.sync,
                          &times.transfer, &times.transfer_beta})
        if (v->size() != cells) throw std::invalid_argument("figures must be [layers, types]");
    if (reach_.size() != cells) throw std::invalid_argument("reach must be [layers, types]");
    if (price_.size() != static_cast<std::size_t>(types) || limit_.size() != price_.size())
        throw std::invalid_argument("price and limit must be [types]");
    build_stages(times);
}

void Model::build_stages(const LayerTimes& times) {
    row_.resize(static_cast<std::size_t>(layers_));
    std::size_t rows = 0;
    for (int a = 0; a < layers_; ++a) {
        row_[a] = rows;
        rows += static_cast<std::size_t>(layers_ - a);
    }
    stages_.assign(rows * types_, StageTime{});
    for (int t = 0; t < types_; ++t) {
        for (int a = 0; a < layers_; ++a) {
            const auto at = [t, this](int layer) {
                return static_cast<std::size_t>(layer) * types_ + t;
            };
            StageTime sum;
            const auto add_transfer = [&](StageTime& s, int layer) {
                const double x = times.transfer[at(layer)], f = times.transfer_beta[at(layer)];
                s.comm_serial += x * (1 - f);
                s.comm_parallel += x * f;
            };
            if (a > 0) add_transfer(sum, a);
            for (int l = a; l < reach(a, t); ++l) {
                const double x = times.compute[at(l)], f = times.alpha[at(l)];
                const double y = times.comm[at(l)], g = times.beta[at(l)];
                sum.compute_serial += x * (1 - f);
                sum.compute_parallel += x * f;
                sum.comm_serial += y * (1 - g) + times.sync[at(l)];
                sum.comm_parallel += y * g;
                StageTime& stage = stages_[stage_index(a, l + 1, t)];
                stage = sum;
                if (l + 1 < layers_) add_transfer(stage, l + 1);
            }
        }
    }
}

std::int64_t Model::min_units(const StageTime& stage, int type, double period) const {
    const double allowed = period * (1 + kSlack);
    const double most = static_cast<double>(limit_[type]);
    if (!(stage.period(most) <= allowed)) return 0;
    double start = 1;
    if (stage.compute_parallel > 0)
        start = std::max(start, stage.compute_parallel / (allowed - stage.compute_serial));
    if (stage.comm_parallel > 0)
        start = std::max(start, stage.comm_parallel / (allowed - stage.comm_serial));
    double k = std::min(std::ceil(start), most);
    while (k > 1 && stage.period(k - 1) <= allowed) --k;
    while (stage.period(k) > allowed) ++k;
    return static_cast<std::int64_t>(k);
}

}  // namespace heterps::planning
