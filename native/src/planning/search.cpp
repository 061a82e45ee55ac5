#include "heterps/planning/search.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

namespace heterps::planning {

namespace {
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kProof = 1e-9;  // relative: costs closer than this count as equal
constexpr double kNarrow = 1e-4;
constexpr int kFirstIterations = 120;  // of the relaxation, at the first interval
constexpr int kIterations = 25;        // and at each later one
constexpr std::int64_t kTableBudget = 8'000'000;
constexpr std::int64_t kMostTable = 64'000'000;
constexpr std::int64_t kFeasibilityTable = 200;  // arcs times states, per label allowed
constexpr std::int64_t kFirstLabels = 8000;
constexpr std::int64_t kMostLabels = 8'000'000;

// Where many labels are spent, larger tables pay.
std::int64_t table_budget(std::int64_t label_cap) {
    return std::min(kTableBudget * (label_cap / kFirstLabels), kMostTable);
}

std::uint64_t hash_of(const std::int32_t* assignment, int layers) {
    std::uint64_t h = 0x9e3779b97f4a7c15ULL;
    for (int l = 0; l < layers; ++l) {
        h ^=
            static_cast<std::uint64_t>(assignment[l]) + 0x9e3779b97f4a7c15ULL + (h << 6) + (h >> 2);
        h *= 0xbf58476d1ce4e5b9ULL;
        h ^= h >> 29;
    }
    return h;
}
}  // namespace

Search::Search(const Model& model, std::vector<std::uint8_t> runs)
    : model_(model), provisioner_(model, std::move(runs)) {
    best_.cost = kInfinity;
}

bool Search::offer(const std::int32_t* assignment) {
    if (!evaluated_.insert(hash_of(assignment, model_.layers())).second) return false;
    ++statistics_.evaluations;
    statistics_.work += 200;
    const Provision p = provisioner_.cheapest(assignment, units_);
    if (p.status != Status::kFeasible || p.cost >= best_.cost) return false;
    best_ = p;
    best_assignment_.assign(assignment, assignment + model_.layers());
    return true;
}

double Search::cutoff() const { return best_.cost * (1 - kProof); }

double Search::lower_bound() const {
    if (!started_) return 0;
    double bound = std::min(unresolved_, best_.cost);
    if (!open_.empty()) bound = std::min(bound, open_.top().bound);
    return bound;
}

void Search::list_candidates() {
    for (int a = 0; a < model_.layers(); ++a)
        for (int t = 0; t < model_.types(); ++t)
            for (int b = a + 1; b <= model_.reach(a, t) && model_.limit(t) > 0; ++b)
                candidates_.push_back({a, b, t});
}

std::vector<std::int32_t> Search::all_candidates() const {
    std::vector<std::int32_t> ids(candidates_.size());
    std::iota(ids.begin(), ids.end(), 0);
    return ids;
}

// Bounds on the period: `high_` is never worth exceeding, and nothing is faster than `low_`
// unless it takes no time at all.
void Search::start() {
    started_ = true;
    list_candidates();
    double slowest = 0, least = kInfinity;
    std::vector<double> bottleneck(static_cast<std::size_t>(model_.layers()) + 1, kInfinity);
    bottleneck[0] = 0;
    for (const auto& c : candidates_) {
        const StageTime& stage = model_.stage(c.first, c.end, c.type);
        const double fastest = stage.period(static_cast<double>(model_.limit(c.type)));
        slowest = std::max(slowest, stage.period(1));
        if (fastest > 0) least = std::min(least, fastest);
        double& at_end = bottleneck[static_cast<std::size_t>(c.end)];
        at_end = std::min(at_end, std::max(bottleneck[static_cast<std::size_t>(c.first)], fastest));
    }
    high_ = std::min(slowest, model_.max_period());
    low_ = std::max(bottleneck.back(), least) * (1 - 2 * kSlack);
}

// Whether a plan exists whose every stage takes no time: it costs nothing.
bool Search::free_plan() {
    std::vector<std::int32_t> assignment, candidates = all_candidates();
    if (!within_limits(0, candidates, assignment)) return false;
    offer(assignment.data());
    return best_.cost == 0;
}

ArcGraph Search::graph_at(double low, double high, const std::vector<std::int32_t>& candidates,
                          bool settled) const {
    ArcGraph graph;
    graph.layers = model_.layers();
    graph.types = model_.types();
    for (int t = 0; t < graph.types; ++t)
        graph.limit.push_back(std::max<std::int64_t>(1, model_.limit(t)));
    graph.arcs.reserve(candidates.size());
    for (const std::int32_t id : candidates) {
        const Candidate& c = candidates_[static_cast<std::size_t>(id)];
        const StageTime& stage = model_.stage(c.first, c.end, c.type);
        const std::int64_t k = model_.min_units(stage, c.type, high);
        if (k == 0) continue;
        const double own = stage.period(static_cast<double>(k));
        const double at = settled ? low : std::max(low, std::min(own, high));
        const double cost = model_.price(c.type) * static_cast<double>(k) * at;
        graph.arcs.push_back({c.first, c.end, c.type, id, k, cost});
    }
    graph.index();
    return graph;
}

std::vector<std::int32_t> Search::kept(const ArcGraph& graph, const Relaxation& relaxation,
                                       double slack) const {
    Distances before, after;
    before.forward(graph, relaxation.multipliers);
    after.backward(graph, relaxation.multipliers);
    double credit = 0;
    for (int t = 0; t < graph.types; ++t)
        credit += relaxation.multipliers[static_cast<std::size_t>(t)] *
                  static_cast<double>(graph.limit[static_cast<std::size_t>(t)]);
    std::vector<std::int32_t> ids;
    for (const Arc& arc : graph.arcs) {
        const double through = before.without(arc.first, arc.type) + arc.cost +
                               relaxation.multipliers[static_cast<std::size_t>(arc.type)] *
                                   static_cast<double>(arc.units) +
                               after.without(arc.end, arc.type) - credit;
        if (through < slack) ids.push_back(arc.id);
    }
    return ids;
}

std::vector<std::int32_t> Search::assignment_of(const ArcGraph& graph,
                                                const std::vector<std::size_t>& chain) {
    std::vector<std::int32_t> assignment(static_cast<std::size_t>(graph.layers));
    for (const std::size_t i : chain)
        for (int l = graph.arcs[i].first; l < graph.arcs[i].end; ++l)
            assignment[static_cast<std::size_t>(l)] = graph.arcs[i].type;
    return assignment;
}

void Search::offer_chain(const ArcGraph& graph, const std::vector<std::size_t>& chain) {
    offer(assignment_of(graph, chain).data());
}

void Search::split(Interval interval, double bound, std::vector<std::int32_t> kept,
                   std::vector<double> multipliers, double high) {
    if (high < interval.low) return;
    auto shared = std::make_shared<const std::vector<std::int32_t>>(std::move(kept));
    const double middle = std::sqrt(interval.low * high);
    const bool narrow = high <= interval.low * (1 + 1e-7);
    if (narrow || middle <= interval.low || middle >= high) {
        open_.push({interval.low, high, bound, shared, std::move(multipliers), interval.label_cap});
        return;
    }
    open_.push({middle, high, bound, shared, multipliers, interval.label_cap});
    open_.push({interval.low, middle, bound, shared, std::move(multipliers), interval.label_cap});
}

void Search::process(Interval interval) {
    ++statistics_.intervals;
    // In a narrow interval every stage's cost is taken as proportional to its units.
    const bool settled = interval.high <= interval.low * (1 + kNarrow);
    const ArcGraph graph = graph_at(interval.low, interval.high, *interval.candidates, settled);
    const double fixed = model_.overhead() * interval.low;
    statistics_.work += static_cast<std::int64_t>(interval.candidates->size()) * 4;
    Relaxation relaxation;
    relaxation.multipliers = interval.multipliers;
    const int iterations = statistics_.intervals == 1 ? kFirstIterations : kIterations;
    relax(graph, cutoff() - fixed, iterations, relaxation,
          [&](const auto& chain) { offer_chain(graph, chain); });
    statistics_.work += static_cast<std::int64_t>(graph.arcs.size()) * iterations;
    double bound = std::max(interval.bound, relaxation.bound + fixed);
    if (bound >= cutoff()) return;
    std::vector<std::int32_t> ids = kept(graph, relaxation, cutoff() - fixed);
    std::vector<std::size_t> chain;
    bool solved = relaxation.exact;
    if (solved) {
        chain = relaxation.chain;
    } else {
        const ArcGraph smaller = graph_at(interval.low, interval.high, ids, settled);
        const ChainResult result =
            cheapest_chain(smaller, relaxation, cutoff() - fixed,
                           {interval.label_cap, table_budget(interval.label_cap), stop_});
        statistics_.labels += result.labels;
        statistics_.work += result.work;
        bound = std::max(bound, result.bound + fixed);
        if (result.end == ChainResult::End::kAboveCutoff) return;
        if (result.end == ChainResult::End::kCapped) {
            if (settled) {
                if (interval.label_cap >= kMostLabels) {
                    unresolved_ = std::min(unresolved_, bound);
                    return;
                }
                interval.label_cap *= 8;
            }
        } else {
            solved = true;
            offer_chain(smaller, result.chain);
            for (const std::size_t i : result.chain) {
                // The chain's arcs as they stand in `graph`.
                const auto id = smaller.arcs[i].id;
                const auto at =
                    std::lower_bound(graph.arcs.begin(), graph.arcs.end(), id,
                                     [](const Arc& arc, std::int32_t x) { return arc.id < x; });
                chain.push_back(static_cast<std::size_t>(at - graph.arcs.begin()));
            }
        }
    }
    double high = interval.high;
    if (solved) {
        offer_chain(graph, chain);
        if (bound >= cutoff()) return;
        double period = 0;
        for (const std::size_t i : chain) {
            const Arc& arc = graph.arcs[i];
            period = std::max(
                period,
                model_.stage(arc.first, arc.end, arc.type).period(static_cast<double>(arc.units)));
        }
        // With every stage's cost proportional to its units this chain has the fewest dollars per
        // hour of all from `high` down to its own period, where it is cheapest: go on below.
        if (settled) high = std::min(period, high) * (1 - 2 * kSlack);
    }
    split(std::move(interval), bound, std::move(ids), std::move(relaxation.multipliers), high);
}

bool Search::run(std::int64_t work, std::function<bool()> stop) {
    stop_ = std::move(stop);
    if (!started_) {
        start();
        if (free_plan()) return true;
        auto all = std::make_shared<const std::vector<std::int32_t>>(all_candidates());
        if (std::isfinite(low_) && low_ <= high_ * (1 + kSlack))
            open_.push({std::min(low_, high_), high_, 0, all, {}, kFirstLabels});
    }
    const std::int64_t end = statistics_.work + work;
    while (!open_.empty() && statistics_.work < end) {
        if (open_.top().bound >= cutoff()) {
            open_ = {};
            break;
        }
        Interval interval = open_.top();
        open_.pop();
        process(std::move(interval));
    }
    stop_ = {};
    return open_.empty();
}

// Whether some chain of the candidates keeps the period within the limits. Drops the candidates
// that no such chain can use, at this period or at any shorter one.
bool Search::within_limits(double period, std::vector<std::int32_t>& candidates,
                           std::vector<std::int32_t>& assignment) {
    ArcGraph graph = share_graph(period, candidates);
    // A chain within the limits takes at most one whole share of each type.
    const double most = graph.types * (1 + 1e-9) + 1e-9;
    Relaxation relaxation;
    std::vector<std::size_t> within;
    relax(graph, most, kFirstIterations, relaxation, [&](const auto& chain) {
        if (within.empty()) within = chain;
    });
    statistics_.work += static_cast<std::int64_t>(graph.arcs.size()) * kFirstIterations;
    if (within.empty()) {
        if (relaxation.bound >= most) return false;
        graph = share_graph(period, kept(graph, relaxation, most));
        const ChainResult result =
            any_chain(graph, relaxation,
                      {feasibility_labels_, feasibility_labels_ * kFeasibilityTable, stop_});
        statistics_.labels += result.labels;
        statistics_.work += result.work;
        if (result.end != ChainResult::End::kOptimal) return false;
        within = result.chain;
    }
    assignment = assignment_of(graph, within);
    if (!relaxation.exact) candidates = kept(graph, relaxation, most);
    return true;
}

ArcGraph Search::share_graph(double period, const std::vector<std::int32_t>& candidates) const {
    ArcGraph graph = graph_at(period, period, candidates, true);
    for (Arc& arc : graph.arcs)
        arc.cost = static_cast<double>(arc.units) / static_cast<double>(model_.limit(arc.type));
    return graph;
}

double Search::shortest_period(std::vector<std::int32_t>& assignment, double precision,
                               std::int64_t label_cap) {
    feasibility_labels_ = label_cap;
    if (!started_) start();
    std::vector<std::int32_t> found, alive = all_candidates(), nothing = alive;
    if (within_limits(0, nothing, found)) {
        assignment = found;
        return 0;
    }
    double slowest = 0;
    for (const auto& c : candidates_)
        slowest = std::max(slowest, model_.stage(c.first, c.end, c.type).period(1));
    if (!std::isfinite(low_) || !within_limits(slowest, alive, found)) return kInfinity;
    double low = low_, high = provisioner_.fastest(found.data(), units_);
    assignment = found;
    while (high > low * (1 + std::max(precision, 4 * kSlack))) {
        const double middle = std::sqrt(low * high);
        if (middle <= low || middle >= high) break;
        std::vector<std::int32_t> fewer = alive;
        if (within_limits(middle, fewer, found)) {
            alive = std::move(fewer);
            high = provisioner_.fastest(found.data(), units_);
            assignment = found;
        } else {
            low = middle;
        }
    }
    return high;
}

}  // namespace heterps::planning
