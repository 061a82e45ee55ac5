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
        const double value = before + arc.cost +
                             multipliers[static_cast<std::size_t>(arc.type)] * static_cast<double>(arc.units);
        best_[static_cast<std::size_t>(arc.end)].offer(value, arc.type, static_cast<std::int64_t>(i));
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
        const double value = after + arc.cost +
                             multipliers[static_cast<std::size_t>(arc.type)] * static_cast<double>(arc.units);
        best_[static_cast<std::size_t>(arc.first)].offer(value, arc.type, static_cast<std::int64_t>(i));
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

namespace {

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

// The types whose limit some chain of the graph could break: only those need to be compared.
std::vector<int> binding_types(const ArcGraph& graph) {
    std::vector<int> types;
    std::vector<double> most(static_cast<std::size_t>(graph.layers) + 1);
    for (int t = 0; t < graph.types; ++t) {
        std::fill(most.begin(), most.end(), 0.0);
        for (std::size_t i = graph.arcs.size(); i-- > 0;) {
            const Arc& arc = graph.arcs[i];
            const double own = arc.type == t ? static_cast<double>(arc.units) : 0.0;
            double& m = most[static_cast<std::size_t>(arc.first)];
            m = std::max(m, own + most[static_cast<std::size_t>(arc.end)]);
        }
        if (most[0] > static_cast<double>(graph.limit[static_cast<std::size_t>(t)])) types.push_back(t);
    }
    return types;
}

class LabelSearch {
  public:
    LabelSearch(const ArcGraph& graph, const Relaxation& relaxation, double cutoff)
        : graph_(graph),
          multipliers_(relaxation.multipliers),
          cutoff_(cutoff),
          binding_(binding_types(graph)),
          expanded_(static_cast<std::size_t>((graph.layers + 1) * graph.types)),
          queue_(Later{labels_}) {
        multipliers_.resize(static_cast<std::size_t>(graph.types), 0.0);
        guided_.backward(graph, multipliers_);
        plain_.backward(graph, std::vector<double>(multipliers_.size(), 0.0));
        for (std::size_t t = 0; t < multipliers_.size(); ++t)
            credit_ += multipliers_[t] * static_cast<double>(graph.limit[t]);
        slot_.assign(static_cast<std::size_t>(graph.types), -1);
        for (std::size_t s = 0; s < binding_.size(); ++s)
            slot_[static_cast<std::size_t>(binding_[s])] = static_cast<int>(s);
    }

    ChainResult run(std::int64_t cap) {
        std::int64_t count = 0;
        push_root();
        while (!queue_.empty()) {
            const std::size_t i = queue_.top();
            const Label label = labels_[i];
            if (label.bound >= cutoff_) return {ChainResult::End::kAboveCutoff, label.bound, {}, count};
            if (count >= cap) return {ChainResult::End::kCapped, label.bound, {}, count};
            queue_.pop();
            if (label.position == graph_.layers)
                return {ChainResult::End::kOptimal, label.cost, chain_of(i), count};
            if (dominated(i)) continue;
            ++count;
            if (label.type >= 0) bucket(label).push_back(i);
            expand(i);
        }
        return {ChainResult::End::kAboveCutoff, std::max(skipped_, cutoff_), {}, count};
    }

  private:
    using Units = std::int64_t;

    void push_root() {
        labels_.push_back({0, 0, -1, -1, 0, -1});
        used_.resize(binding_.size(), 0);
        reduced_.push_back(0);
        queue_.push(0);
    }

    std::vector<std::size_t>& bucket(const Label& label) {
        return expanded_[static_cast<std::size_t>(label.position * graph_.types + label.type)];
    }

    bool dominated(std::size_t i) {
        const Label& label = labels_[i];
        if (label.type < 0) return false;
        const Units* mine = &used_[i * binding_.size()];
        for (const std::size_t j : bucket(label)) {
            if (labels_[j].cost > label.cost) continue;
            const Units* other = &used_[j * binding_.size()];
            bool all = true;
            for (std::size_t s = 0; s < binding_.size() && all; ++s) all = other[s] <= mine[s];
            if (all) return true;
        }
        return false;
    }

    void expand(std::size_t i) {
        const Label from = labels_[i];
        const auto a = static_cast<std::size_t>(from.position);
        for (std::size_t e = graph_.begin[a]; e < graph_.begin[a + 1]; ++e) {
            const Arc& arc = graph_.arcs[e];
            if (arc.type == from.type) continue;
            const auto t = static_cast<std::size_t>(arc.type);
            const int slot = slot_[t];
            if (slot >= 0 && used_[i * binding_.size() + static_cast<std::size_t>(slot)] + arc.units > graph_.limit[t])
                continue;
            const double cost = from.cost + arc.cost;
            const double reduced = reduced_[i] + arc.cost + multipliers_[t] * static_cast<double>(arc.units);
            const double bound =
                std::max({from.bound, reduced + guided_.without(arc.end, arc.type) - credit_,
                          cost + plain_.without(arc.end, arc.type)});
            if (bound >= cutoff_) {
                if (bound < skipped_) skipped_ = bound;
                continue;
            }
            labels_.push_back({bound, cost, static_cast<std::int64_t>(e), static_cast<std::int64_t>(i), arc.end, arc.type});
            reduced_.push_back(reduced);
            const std::size_t at = used_.size();
            used_.resize(at + binding_.size());
            std::copy_n(used_.begin() + static_cast<std::ptrdiff_t>(i * binding_.size()), binding_.size(),
                        used_.begin() + static_cast<std::ptrdiff_t>(at));
            if (slot >= 0) used_[at + static_cast<std::size_t>(slot)] += arc.units;
            queue_.push(labels_.size() - 1);
        }
    }

    std::vector<std::size_t> chain_of(std::size_t i) const {
        std::vector<std::size_t> chain;
        for (auto at = static_cast<std::int64_t>(i); labels_[static_cast<std::size_t>(at)].arc >= 0;
             at = labels_[static_cast<std::size_t>(at)].parent)
            chain.push_back(static_cast<std::size_t>(labels_[static_cast<std::size_t>(at)].arc));
        std::reverse(chain.begin(), chain.end());
        return chain;
    }

    const ArcGraph& graph_;
    std::vector<double> multipliers_;
    double cutoff_, credit_ = 0, skipped_ = kInfinity;
    std::vector<int> binding_, slot_;
    Distances guided_, plain_;
    std::vector<Label> labels_;
    std::vector<double> reduced_;
    std::vector<Units> used_;
    std::vector<std::vector<std::size_t>> expanded_;
    std::priority_queue<std::size_t, std::vector<std::size_t>, Later> queue_;
};

}  // namespace

ChainResult cheapest_chain(const ArcGraph& graph, const Relaxation& relaxation, double cutoff,
                           std::int64_t label_cap) {
    return LabelSearch(graph, relaxation, cutoff).run(label_cap);
}

}  // namespace heterps::planning
