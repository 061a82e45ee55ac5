#include <algorithm>
#include <cmath>
#include <limits>

#include "heterps/planning/search.hpp"

namespace heterps::planning {

namespace {
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int kScan = 14, kRefine = 7, kIterations = 12;
// The periods that are looked at closely, as multiples of the best one; the last is the floor's.
constexpr double kAround[] = {0.9, 1.0, 1.1};
}  // namespace

Search::Level Search::relaxed_at(double period, std::vector<double> multipliers) const {
    const ArcGraph graph = graph_at(period, period, all_candidates(), true);
    Relaxation relaxation;
    relaxation.multipliers = std::move(multipliers);
    relaxation.multipliers.resize(static_cast<std::size_t>(model_.types()), 0.0);
    relax(graph, kInfinity, kIterations, relaxation, [](const auto&) {});
    return {period, relaxation.bound + model_.overhead() * period, relaxation.multipliers};
}

// From slow to fast, each level starting from the multipliers of the one before.
std::vector<Search::Level> Search::relaxed_between(double low, double high, int count) const {
    std::vector<Level> levels;
    std::vector<double> multipliers;
    for (int i = 0; i < count; ++i) {
        const double share = count > 1 ? static_cast<double>(i) / (count - 1) : 0;
        levels.push_back(relaxed_at(high * std::pow(low / high, share), multipliers));
        multipliers = levels.back().multipliers;
    }
    return levels;
}

void Search::force_layers(const Level& level, std::vector<double>& forced) const {
    const auto types = static_cast<std::size_t>(model_.types());
    const ArcGraph graph = graph_at(level.period, level.period, all_candidates(), true);
    Distances before, after;
    before.forward(graph, level.multipliers);
    after.backward(graph, level.multipliers);
    double fixed = model_.overhead() * level.period;
    for (std::size_t t = 0; t < types; ++t)
        fixed -= level.multipliers[t] * static_cast<double>(graph.limit[t]);
    const std::size_t base = forced.size();
    forced.resize(base + static_cast<std::size_t>(model_.layers()) * types, kInfinity);
    for (const Arc& arc : graph.arcs) {
        const double price = level.multipliers[static_cast<std::size_t>(arc.type)];
        const double through = before.without(arc.first, arc.type) + arc.cost +
                               price * static_cast<double>(arc.units) +
                               after.without(arc.end, arc.type) + fixed;
        for (int l = arc.first; l < arc.end; ++l) {
            double& cell = forced[base + static_cast<std::size_t>(l) * types +
                                  static_cast<std::size_t>(arc.type)];
            cell = std::min(cell, through);
        }
    }
}

Search::Outlook Search::outlook() {
    if (!started_) start();
    Outlook result;
    if (!std::isfinite(low_) || !(low_ > 0) || !(high_ >= low_)) return result;
    const auto cheaper = [](const Level& x, const Level& y) { return x.cost < y.cost; };
    const auto scan = relaxed_between(low_, high_, kScan);
    const auto at = std::min_element(scan.begin(), scan.end(), cheaper) - scan.begin();
    const double slower =
        scan[static_cast<std::size_t>(std::max<std::ptrdiff_t>(at - 1, 0))].period;
    const double faster =
        scan[static_cast<std::size_t>(std::min<std::ptrdiff_t>(at + 1, kScan - 1))].period;
    const auto refined = relaxed_between(faster, slower, kRefine);
    const Level best = *std::min_element(refined.begin(), refined.end(), cheaper);
    if (!std::isfinite(best.cost)) return result;
    std::vector<Level> levels;
    for (const double factor : kAround)
        levels.push_back(
            relaxed_at(std::clamp(best.period * factor, low_, high_), best.multipliers));
    levels.push_back(relaxed_at(high_, scan.front().multipliers));
    for (const Level& level : levels) {
        result.period.push_back(level.period);
        result.cost.push_back(level.cost);
        force_layers(level, result.forced);
    }
    return result;
}

}  // namespace heterps::planning
