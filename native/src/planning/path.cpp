#include "heterps/planning/path.hpp"

#include <algorithm>
#include <cmath>
#include <queue>

namespace heterps::planning {

namespace {
constexpr double kInfinity = std::numeric_limits<double>::infinity();
}

void ArcGraph::index() {
    begin.assign(static_cast<std::size_t>(layers) + 1, 0);
    for (const Arc& arc : arcs) ++begin[static_cast<std::size_t>(arc.first) + 1];
    for (std::size_t a = 1; a < begin.size(); ++a) begin[a] += begin[a - 1];
}

void Distances::Best::offer(double value, int value_type, std::int64_t value_arc) {
    if (value_type == type) {
        if (value < first) {
            first = value;
            arc = value_arc;
        }
    } else if (value < first) {
        second = first;
        second_arc = arc;
        first = value;
        type = value_type;
        arc = value_arc;
    } else if (value < second) {
        second = value;
        second_arc = value_arc;
    }
}

void Distances::forward(const ArcGraph& graph, const std::vector<double>& multipliers) {
    best_.assign(static_cast<std::size_t>(graph.layers) + 1, Best{});
    best_[0].first = best_[0].second = 0;
    for (std::size_t i = 0; i < graph.arcs.size(); ++i) {
        const Arc& arc = graph.arcs[i];
        const double before = without(arc.first, arc.type);
        if (before == kInfinity) continue;
        const double value =
            before + arc.cost +
            multipliers[static_cast<std::size_t>(arc.type)] * static_cast<double>(arc.units);
        best_[static_cast<std::size_t>(arc.end)].offer(value, arc.type,
                                                       static_cast<std::int64_t>(i));
    }
}

void Distances::backward(const ArcGraph& graph, const std::vector<double>& multipliers) {
    best_.assign(static_cast<std::size_t>(graph.layers) + 1, Best{});
    Best& end = best_[static_cast<std::size_t>(graph.layers)];
    end.first = end.second = 0;
    for (std::size_t i = graph.arcs.size(); i-- > 0;) {
        const Arc& arc = graph.arcs[i];
        const double after = without(arc.end, arc.type);
        if (after == kInfinity) continue;
        const double value =
            after + arc.cost +
            multipliers[static_cast<std::size_t>(arc.type)] * static_cast<double>(arc.units);
        best_[static_cast<std::size_t>(arc.first)].offer(value, arc.type,
                                                         static_cast<std::int64_t>(i));
    }
}

void Distances::trace(const ArcGraph& graph, std::vector<std::size_t>& arcs) const {
    arcs.clear();
    int position = graph.layers, next_type = -1;
    while (position > 0) {
        const Best& b = best_[static_cast<std::size_t>(position)];
        const auto i = static_cast<std::size_t>(b.type == next_type ? b.second_arc : b.arc);
        arcs.push_back(i);
        next_type = graph.arcs[i].type;
        position = graph.arcs[i].first;
    }
    std::reverse(arcs.begin(), arcs.end());
}

CountedDistances::CountedDistances(const ArcGraph& graph, const std::vector<double>& multipliers,
                                   std::vector<Counted> counted)
    : graph_(graph), multipliers_(multipliers), counted_(std::move(counted)) {
    for (const Counted& c : counted_) {
        const auto t = static_cast<std::size_t>(c.type);
        multipliers_[t] = 0;
        capacity_.push_back(graph.limit[t] / c.grain);
        stride_.push_back(states_);
        states_ *= static_cast<std::size_t>(capacity_.back()) + 1;
    }
    const auto positions = static_cast<std::size_t>(graph.layers) + 1;
    best_.assign(positions * states_, {kInfinity, kInfinity, -1});
    std::fill(best_.end() - static_cast<std::ptrdiff_t>(states_), best_.end(), Best{0, 0, -1});
    for (std::size_t i = graph.arcs.size(); i-- > 0;) {
        const Arc& arc = graph.arcs[i];
        settle(arc, arc.cost + multipliers_[static_cast<std::size_t>(arc.type)] *
                                   static_cast<double>(arc.units));
    }
}

// State s counts the units left: an arc of a counted type leads from s to s less its units.
void CountedDistances::settle(const Arc& arc, double own) {
    Best* from = &best_[static_cast<std::size_t>(arc.first) * states_];
    const Best* to = &best_[static_cast<std::size_t>(arc.end) * states_];
    std::size_t shift = 0, stride = 1, capacity = 0, units = 0;
    for (std::size_t c = 0; c < counted_.size(); ++c) {
        if (counted_[c].type != arc.type) continue;
        stride = stride_[c];
        capacity = static_cast<std::size_t>(capacity_[c]);
        units = static_cast<std::size_t>(arc.units / counted_[c].grain);
        if (units > capacity) return;
        shift = units * stride;
    }
    const std::size_t block = stride * (capacity + 1);
    for (std::size_t base = 0; base < states_; base += block) {
        for (std::size_t s = base + shift; s < base + block; ++s) {
            const Best& after = to[s - shift];
            const double value = own + (after.type == arc.type ? after.second : after.first);
            Best& b = from[s];
            if (value >= b.second) continue;
            if (b.type == arc.type) {
                if (value < b.first) b.first = value;
            } else if (value < b.first) {
                b.second = b.first;
                b.first = value;
                b.type = arc.type;
            } else {
                b.second = value;
            }
        }
    }
}

double CountedDistances::remaining(int position, int type, const std::int64_t* used) const {
    std::size_t state = 0;
    double priced = 0;
    for (std::size_t c = 0; c < counted_.size(); ++c) {
        const auto t = static_cast<std::size_t>(counted_[c].type);
        state +=
            static_cast<std::size_t>((graph_.limit[t] - used[t]) / counted_[c].grain) * stride_[c];
    }
    for (std::size_t t = 0; t < multipliers_.size(); ++t)
        priced += multipliers_[t] * static_cast<double>(used[t] - graph_.limit[t]);
    const Best& b = best_[static_cast<std::size_t>(position) * states_ + state];
    return priced + (b.type == type ? b.second : b.first);
}

namespace {

constexpr std::int64_t kLabelWork = 500;  // elementary steps that a label takes, about

struct Label {
    double bound, cost;
    std::int64_t arc, parent;
    std::int32_t position, type;
};

struct Later {
    const std::vector<Label>& labels;
    bool operator()(std::size_t x, std::size_t y) const {
        const Label &a = labels[x], &b = labels[y];
        if (a.bound != b.bound) return a.bound > b.bound;
        if (a.position != b.position) return a.position < b.position;
        return x > y;
    }
};

// The most units of each type that some chain of the graph takes.
std::vector<double> most_units(const ArcGraph& graph) {
    std::vector<double> result;
    std::vector<double> most(static_cast<std::size_t>(graph.layers) + 1);
    for (int t = 0; t < graph.types; ++t) {
        std::fill(most.begin(), most.end(), 0.0);
        for (std::size_t i = graph.arcs.size(); i-- > 0;) {
            const Arc& arc = graph.arcs[i];
            const double own = arc.type == t ? static_cast<double>(arc.units) : 0.0;
            double& m = most[static_cast<std::size_t>(arc.first)];
            m = std::max(m, own + most[static_cast<std::size_t>(arc.end)]);
        }
        result.push_back(most[0]);
    }
    return result;
}

// What a label search knows of an expanded label, packed for comparison: cost, then the units used
// of the types whose limit can bind.
class Frontier {
  public:
    explicit Frontier(std::size_t width) : width_(width) {}
    bool dominates(const double* entry) const {
        for (std::size_t i = 0; i < entries_.size(); i += width_) {
            std::size_t s = 0;
            while (s < width_ && entries_[i + s] <= entry[s]) ++s;
            if (s == width_) return true;
        }
        return false;
    }
    void add(const double* entry) { entries_.insert(entries_.end(), entry, entry + width_); }

  private:
    std::size_t width_;
    std::vector<double> entries_;
};

class LabelSearch {
  public:
    LabelSearch(const ArcGraph& graph, std::vector<double> multipliers, double cutoff,
                const Effort& effort, bool any)
        : effort_(effort),
          any_(any),
          graph_(graph),
          types_(static_cast<std::size_t>(graph.types)),
          multipliers_(std::move(multipliers)),
          cutoff_(cutoff),
          queue_(Later{labels_}) {
        multipliers_.resize(types_, 0.0);
        const std::vector<double> most = most_units(graph);
        for (std::size_t t = 0; t < types_; ++t)
            if (most[t] > static_cast<double>(graph.limit[t])) binding_.push_back(t);
        frontiers_.assign(static_cast<std::size_t>(graph.layers + 1) * types_,
                          Frontier(binding_.size() + 1));
        entry_.resize(binding_.size() + 1);
        choose_tables(effort.table_budget);
        guided_.backward(graph, multipliers_);
    }

    ChainResult run() {
        ChainResult result = search();
        result.work = table_work_ + result.labels * kLabelWork;
        return result;
    }

  private:
    ChainResult search() {
        std::int64_t count = 0;
        push_root();
        while (!queue_.empty()) {
            const std::size_t i = queue_.top();
            const Label label = labels_[i];
            if (label.bound >= cutoff_)
                return {ChainResult::End::kAboveCutoff, label.bound, {}, count, 0};
            if (count >= effort_.label_cap ||
                (count % 4096 == 4095 && effort_.stop && effort_.stop()))
                return {ChainResult::End::kCapped, label.bound, {}, count, 0};
            queue_.pop();
            if (label.position == graph_.layers)
                return {ChainResult::End::kOptimal, label.cost, chain_of(i), count, 0};
            if (label.type >= 0) {
                pack(i);
                Frontier& frontier = frontiers_[static_cast<std::size_t>(label.position) * types_ +
                                                static_cast<std::size_t>(label.type)];
                if (frontier.dominates(entry_.data())) continue;
                frontier.add(entry_.data());
            }
            ++count;
            expand(i);
            if (any_ && labels_.back().position == graph_.layers)
                return {ChainResult::End::kOptimal, labels_.back().cost,
                        chain_of(labels_.size() - 1), count, 0};
        }
        return {ChainResult::End::kAboveCutoff, std::max(skipped_, cutoff_), {}, count, 0};
    }

    // One table that counts as many of the scarcest types together as the budget allows, and one
    // for each other type on its own.
    void choose_tables(std::int64_t budget) {
        const auto arcs = std::max<std::int64_t>(1, static_cast<std::int64_t>(graph_.arcs.size()));
        const std::int64_t states = budget / arcs;
        if (states < 4) return;
        std::vector<std::size_t> scarce = binding_;
        std::sort(scarce.begin(), scarce.end(), [this](std::size_t x, std::size_t y) {
            return graph_.limit[x] < graph_.limit[y];
        });
        std::vector<CountedDistances::Counted> together;
        std::int64_t product = 1;
        for (const std::size_t t : scarce) {
            const std::int64_t size = graph_.limit[t] + 1;
            if (size <= states / product) {
                together.push_back({static_cast<int>(t), 1});
                product *= size;
            } else {
                const std::int64_t grain =
                    1 + graph_.limit[t] / std::min<std::int64_t>(states, 1024);
                tables_.emplace_back(
                    graph_, multipliers_,
                    std::vector<CountedDistances::Counted>{{static_cast<int>(t), grain}});
                table_work_ += arcs * (graph_.limit[t] / grain + 1);
            }
        }
        if (!together.empty()) table_work_ += arcs * product;
        if (!together.empty()) tables_.emplace_back(graph_, multipliers_, together);
    }

    void push_root() {
        used_.resize(types_, 0);
        double bound = guided_.total(0);
        for (std::size_t t = 0; t < types_; ++t)
            bound -= multipliers_[t] * static_cast<double>(graph_.limit[t]);
        for (const auto& table : tables_)
            bound = std::max(bound, table.remaining(0, -1, used_.data()));
        labels_.push_back({bound, 0, -1, -1, 0, -1});
        queue_.push(0);
    }

    void pack(std::size_t i) {
        entry_[0] = labels_[i].cost;
        for (std::size_t s = 0; s < binding_.size(); ++s)
            entry_[s + 1] = static_cast<double>(used_[i * types_ + binding_[s]]);
    }

    void expand(std::size_t i) {
        const Label from = labels_[i];
        const auto a = static_cast<std::size_t>(from.position);
        const std::size_t at = used_.size();
        used_.resize(at + types_);
        for (std::size_t e = graph_.begin[a]; e < graph_.begin[a + 1]; ++e) {
            const Arc& arc = graph_.arcs[e];
            if (arc.type == from.type) continue;
            const auto t = static_cast<std::size_t>(arc.type);
            std::int64_t* used = &used_[labels_.size() * types_];
            std::copy_n(&used_[i * types_], types_, used);
            used[t] += arc.units;
            if (used[t] > graph_.limit[t]) continue;
            const double cost = from.cost + arc.cost;
            // A whole chain is bounded by its cost: the credit for units left over is not its own.
            const bool whole = arc.end == graph_.layers;
            const double bound = std::max(from.bound, whole ? cost : bound_of(arc, cost, used));
            if (bound >= cutoff_) {
                if (bound < skipped_) skipped_ = bound;
                continue;
            }
            labels_.push_back({bound, cost, static_cast<std::int64_t>(e),
                               static_cast<std::int64_t>(i), arc.end, arc.type});
            queue_.push(labels_.size() - 1);
            used_.resize((labels_.size() + 1) * types_);
            if (any_ && arc.end == graph_.layers) break;
        }
        used_.resize(labels_.size() * types_);
    }

    double bound_of(const Arc& arc, double cost, const std::int64_t* used) const {
        double bound = cost + guided_.without(arc.end, arc.type);
        for (std::size_t t = 0; t < types_; ++t)
            bound += multipliers_[t] * static_cast<double>(used[t] - graph_.limit[t]);
        for (const auto& table : tables_) {
            if (bound >= cutoff_) return bound;
            bound = std::max(bound, cost + table.remaining(arc.end, arc.type, used));
        }
        return bound;
    }

    std::vector<std::size_t> chain_of(std::size_t i) const {
        std::vector<std::size_t> chain;
        for (auto at = static_cast<std::int64_t>(i); labels_[static_cast<std::size_t>(at)].arc >= 0;
             at = labels_[static_cast<std::size_t>(at)].parent)
            chain.push_back(static_cast<std::size_t>(labels_[static_cast<std::size_t>(at)].arc));
        std::reverse(chain.begin(), chain.end());
        return chain;
    }

    const Effort& effort_;
    bool any_;  // the first chain that is found will do
    const ArcGraph& graph_;
    std::size_t types_;
    std::vector<double> multipliers_;
    double cutoff_, skipped_ = kInfinity;
    std::int64_t table_work_ = 0;
    std::vector<std::size_t> binding_;
    Distances guided_;
    std::vector<CountedDistances> tables_;
    std::vector<Label> labels_;
    std::vector<std::int64_t> used_;  // [label, type]
    std::vector<Frontier> frontiers_;
    std::vector<double> entry_;
    std::priority_queue<std::size_t, std::vector<std::size_t>, Later> queue_;
};

}  // namespace

ChainResult cheapest_chain(const ArcGraph& graph, const Relaxation& relaxation, double cutoff,
                           const Effort& effort) {
    return LabelSearch(graph, relaxation.multipliers, cutoff, effort, false).run();
}

ChainResult any_chain(ArcGraph graph, const Relaxation& relaxation, const Effort& effort) {
    // A share is a price on units too. With no other cost, labels compare by their units alone.
    std::vector<double> multipliers = relaxation.multipliers;
    double scale = 0;
    for (std::size_t t = 0; t < multipliers.size(); ++t) {
        multipliers[t] += 1 / static_cast<double>(graph.limit[t]);
        scale += multipliers[t] * static_cast<double>(graph.limit[t]);
    }
    for (Arc& arc : graph.arcs) arc.cost = 0;
    return LabelSearch(graph, std::move(multipliers), 1e-9 * scale, effort, true).run();
}

}  // namespace heterps::planning
