// One push or commit: group the ids, find their rows, apply the rule once per id.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <unordered_map>
#include <vector>

#include "heterps/store/capture.hpp"
#include "heterps/store/grouping.hpp"
#include "heterps/store/rows.hpp"

namespace heterps::store {

// How many rows were last seen at each step; kept only where rows can expire.
class SeenCounts {
  public:
    void add(std::uint32_t step, std::int64_t count = 1) {
        const auto at = counts_.try_emplace(step).first;
        if ((at->second += count) == 0) counts_.erase(at);
    }
    void merge(SeenCounts& other);  // and empties the other
    std::uint64_t since(std::uint32_t step) const;
    std::size_t steps() const { return counts_.size(); }

  private:
    std::unordered_map<std::uint32_t, std::int64_t> counts_;
};

// What a step may do, fixed while it runs.
struct UpdateLimits {
    std::uint32_t step = 0;
    std::uint32_t oldest = 0;  // rows last seen before this have expired
    std::uint32_t admission = 0;
    bool count_seen = false;
};

// Needs the whole table for itself while it runs.
class Update {
  public:
    explicit Update(Rows& rows) : rows_(rows) {}

    // `settle` is given the distinct ids whose rows may be on disk, before anything has changed: it
    // brings the rows in and sets the slots, or throws.
    using Settle = std::function<void(const std::vector<Distinct*>& cold)>;
    void run(const std::vector<Span>& spans, const UpdateLimits& limits, const RuleStep& step,
             ThreadPool& pool, const Settle& settle, const VisitCold& visit_cold,
             HotCapture* capture, SeenCounts& seen);

    std::size_t ids() const { return grouping_.count(); }
    std::size_t distinct() const { return grouping_.distinct(); }

  private:
    struct Fresh {
        std::size_t index;
        std::uint32_t frequency;
    };
    struct Scratch {
        GradientSums sums;
        std::vector<Fresh> fresh;
        std::vector<std::uint64_t> allocated;
        std::vector<Distinct*> late, cold;
        std::size_t missing = 0;  // ids of the segment that have no row
        Grouping::Tables tables;
        SeenCounts seen;
    };
    struct Context {
        const UpdateLimits& limits;
        const RuleStep& step;
        Rule::Apply apply;
        HotCapture* capture;
    };

    template <class Work>
    void for_segments(ThreadPool& pool, Work&& work);
    void look_up(DistinctRange range, bool at_once, Scratch& scratch);
    // Inlined by force: a function that only fetches is taken for one without effect.
    [[gnu::always_inline]] inline void fetch_lines(DistinctRange range) const;
    [[gnu::always_inline]] inline void fetch_rows(const std::uint64_t* rows,
                                                  std::size_t count) const;
    void find_rows(DistinctRange range, bool at_once, Scratch& scratch);
    void look_up_late(Scratch& scratch);
    void finish(const Context& context, ThreadPool& pool, const Settle& settle,
                const VisitCold& visit_cold);
    void apply_segment(std::size_t segment, const Context& context, Scratch& scratch);
    void drop_expired(DistinctRange range, const Context& context, Scratch& scratch);
    void admit(std::size_t segment, DistinctRange range, const Context& context, Scratch& scratch);
    void create(DistinctRange range, const Context& context, Scratch& scratch);
    void apply_rule(DistinctRange range, const Context& context, Scratch& scratch);

    Rows& rows_;
    Grouping grouping_;
    std::vector<Scratch> scratch_;
    std::array<bool, Index::kSegments> done_{};
};

}  // namespace heterps::store
