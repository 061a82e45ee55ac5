#pragma once

#include <algorithm>
#include <cmath>

namespace heterps::planning {

template <class Seen>
void relax(const ArcGraph& graph, double cutoff, int iterations, Relaxation& relaxation,
           Seen seen) {
    const auto types = static_cast<std::size_t>(graph.types);
    std::vector<double> multipliers = relaxation.multipliers;
    multipliers.resize(types, 0.0);
    std::vector<double> excess(types);
    std::vector<std::size_t> chain;
    Distances distances;
    double step = 1.0;
    int stalled = 0;
    for (int i = 0; i < iterations; ++i) {
        distances.forward(graph, multipliers);
        double bound = distances.total(graph.layers);
        for (std::size_t t = 0; t < types; ++t)
            bound -= multipliers[t] * static_cast<double>(graph.limit[t]);
        if (bound == std::numeric_limits<double>::infinity()) {
            relaxation.bound = bound;
            return;
        }
        distances.trace(graph, chain);
        if (bound > relaxation.bound) {
            stalled = 0;
            relaxation.bound = bound;
            relaxation.multipliers = multipliers;
            relaxation.chain = chain;
        } else if (++stalled >= 3) {
            step *= 0.6;
            stalled = 0;
        }
        if (bound >= cutoff) return;
        for (std::size_t t = 0; t < types; ++t) excess[t] = -static_cast<double>(graph.limit[t]);
        for (const std::size_t arc : chain)
            excess[static_cast<std::size_t>(graph.arcs[arc].type)] +=
                static_cast<double>(graph.arcs[arc].units);
        double norm = 0, slack = 0;
        bool within = true;
        for (std::size_t t = 0; t < types; ++t) {
            within = within && excess[t] <= 0;
            slack -= multipliers[t] * excess[t];
            if (multipliers[t] > 0 || excess[t] > 0) {
                const double g = excess[t] / static_cast<double>(graph.limit[t]);
                norm += g * g;
            }
        }
        if (within) {
            seen(chain);
            if (slack <= 1e-12 * std::abs(bound)) {
                relaxation.exact = true;
                relaxation.chain = chain;
                return;
            }
        }
        if (norm == 0) return;
        const double target =
            std::isfinite(cutoff) ? cutoff : bound + 0.05 * std::abs(bound) + 1e-12;
        const double scale = step * std::max(target - bound, 1e-9 * std::abs(bound)) / norm;
        for (std::size_t t = 0; t < types; ++t) {
            // Scaled by the limits, so that types counted in hundreds and in ones move alike.
            const double limit = static_cast<double>(graph.limit[t]);
            multipliers[t] = std::max(0.0, multipliers[t] + scale * excess[t] / (limit * limit));
        }
    }
}

}  // namespace heterps::planning
