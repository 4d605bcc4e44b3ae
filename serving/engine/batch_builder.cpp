#include "serving/engine/batch_builder.h"

#include <algorithm>

namespace trireme {

BatchBuilder::BatchBuilder(const StepLimits& limits, std::vector<AdapterColumns> adapters)
    : adapters_(std::move(adapters)),
      groups_(limits.windows.size()),
      slots_(static_cast<size_t>(limits.sequences)) {}

void BatchBuilder::take(const SchedulerOutput& plan) {
  for (const SlotStart& start : plan.starts) {
    Slot& slot = slots_.at(static_cast<size_t>(start.slot));
    slot.name = ++entered_;
    slot.tables.assign(groups_, {});
    TRIREME_CHECK(start.adapter < std::ssize(adapters_), "adapter is ", start.adapter,
                  ", expected below ", adapters_.size());
    slot.columns =
        start.adapter < 0 ? AdapterColumns{} : adapters_[static_cast<size_t>(start.adapter)];
  }
  TRIREME_CHECK(plan.tables.size() == groups_ * plan.sequences.size(), plan.tables.size(),
                " block tables of ", plan.sequences.size(), " sequences, expected ", groups_,
                " of each");
  for (size_t n = 0; n < plan.tables.size(); ++n) {
    const TableStep& step = plan.tables[n];
    Slot& slot = slots_.at(static_cast<size_t>(plan.sequences[n / groups_].slot));
    change(slot.tables.at(n % groups_), step,
           std::span(plan.blocks)
               .subspan(static_cast<size_t>(step.first_block), static_cast<size_t>(step.blocks)));
  }
}

// A table without blocks begins where the plan says: the blocks before were never in the slot.
void BatchBuilder::change(BlockTable& table, const TableStep& step,
                          std::span<const int32_t> blocks) {
  const int64_t dropped = table.blocks.empty() ? 0 : step.first - table.first;
  TRIREME_CHECK(dropped >= 0 && std::ssize(table.blocks) - dropped == step.kept_blocks,
                "a table has the blocks from ", table.first, " to ", table.end(),
                ", expected from the plan: ", step.kept_blocks, " from ", step.first);
  table.blocks.erase(table.blocks.begin(), table.blocks.begin() + dropped);
  table.first = step.first;
  table.blocks.insert(table.blocks.end(), blocks.begin(), blocks.end());
}

void BatchBuilder::write(Ctx& ctx, StepBatch& batch, const SchedulerOutput& plan, size_t begin,
                         size_t end, int64_t padding, std::vector<LogitRow>& rows,
                         const Sampler* sampler) {
  parts_.clear();
  wanted_.clear();
  embedded_.clear();
  rows.clear();
  int32_t at = 0;
  for (size_t i = begin; i < end; ++i) {
    const SequenceStep& step = plan.sequences[i];
    const std::span<const int32_t> ids(plan.tokens.data() + step.first_token,
                                       static_cast<size_t>(step.tokens));
    const Slot& slot = slots_[static_cast<size_t>(step.slot)];
    parts_.push_back({ids, step.past, slot.tables, slot.name, slot.columns});
    const auto want = [&](int32_t token, int32_t scored, int32_t draft_token = -1) {
      wanted_.push_back(at + token);
      rows.push_back({i, scored, draft_token, int64_t{step.past} + token + 1, {}});
    };
    for (int32_t t = step.first_scored; t < step.first_scored + step.scored; ++t)
      want(t, t + 1 < step.tokens ? ids[static_cast<size_t>(t) + 1] : step.following);
    const int32_t last = step.tokens - 1 - step.draft_tokens;
    if (step.samples) want(last, -1);
    for (int32_t t = last + 1; t < step.tokens && step.samples; ++t)
      want(t, -1, ids[static_cast<size_t>(t)]);
    if (step.embeds) embedded_.push_back(at + step.tokens - 1);
    at += step.tokens;
  }
  for (int64_t i = 0; i < padding; ++i) wanted_.push_back(at++);
  sampling_.clear();
  if (sampler != nullptr) ask_sampling(plan, rows, *sampler);
  batch.write(ctx, parts_, wanted_, padding, embedded_, sampling_);
}

// Adds no parameters if any row needs its logits on the host. Padding is sampled too, and ignored.
void BatchBuilder::ask_sampling(const SchedulerOutput& plan, const std::vector<LogitRow>& rows,
                                const Sampler& sampler) {
  const bool all = std::ranges::all_of(rows, [&](const LogitRow& row) {
    const SequenceStep& step = plan.sequences[row.part];
    return row.scored < 0 && step.mask < 0 && sampler.samples_on_device(step.slot, nullptr);
  });
  if (!all || rows.empty()) return;
  for (const LogitRow& row : rows)
    sampling_.push_back({sampler.sampling(plan.sequences[row.part].slot), row.position});
  sampling_.resize(wanted_.size());
}

}  // namespace trireme
