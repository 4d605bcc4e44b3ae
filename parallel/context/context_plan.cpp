#include "parallel/context/context_plan.h"

namespace trireme {

static_assert(sizeof(AttentionSegment) == kSegmentFields * sizeof(int32_t));

ContextPlan::ContextPlan(const ContextLayout& layout, int rank, int ulysses)
    : layout_(layout),
      group_layout_(layout.grouped(ulysses)),
      rank_(rank),
      ulysses_(ulysses),
      steps_(static_cast<size_t>(group_layout_.ranks)),
      tokens_(tokens_of_rank(layout, rank)),
      group_tokens_(tokens_of_rank(group_layout_, rank / ulysses)),
      global_rows_(group_tokens_.size()),
      order_(order_of_group(layout, ulysses, rank / ulysses)) {
  for (Step& step : steps_) {
    step.segments.reserve(group_tokens_.size());  // no more documents than tokens
    step.key_position.resize(group_tokens_.size());
  }
}

void ContextPlan::build(std::span<const int32_t> cu_seqlens, std::span<const int64_t> rows) {
  const int64_t all = layout_.rows * layout_.length;
  TRIREME_CHECK(!cu_seqlens.empty() && cu_seqlens.front() == 0 && cu_seqlens.back() == all,
                "documents do not cover the ", all, " tokens of the micro-batch");
  TRIREME_CHECK(rows.empty() || std::ssize(rows) == all, rows.size(), " global rows for ", all,
                " tokens");
  const int group = rank_ / ulysses_, ring = group_layout_.ranks;
  for (int t = 0; t < ring; ++t) {
    const int source = (group - t + ring) % ring;
    Step& step = steps_[static_cast<size_t>(t)];
    segments_between(group_layout_, group, source, cu_seqlens, step.segments);
    key_positions(group_layout_, source, cu_seqlens, step.key_position);
  }
  if (rows.empty()) return;
  for (size_t i = 0; i < group_tokens_.size(); ++i)
    global_rows_[i] = group_tokens_[i] < 0 ? 0 : rows[static_cast<size_t>(group_tokens_[i])];
}

AttentionSegments ContextPlan::step(int t) const {
  const Step& step = steps_.at(static_cast<size_t>(t));
  AttentionSegments out;
  out.list = {step.segments.data(), DType::kI32, Shape{std::ssize(step.segments), kSegmentFields}};
  out.key_position = {step.key_position.data(), DType::kI32, Shape{group_tokens()}};
  out.accumulate = t > 0;
  return out;
}

ConstTensor ContextPlan::global_rows() const {
  return {global_rows_.data(), DType::kI64, Shape{group_tokens()}};
}

ConstTensor ContextPlan::order() const {
  return {order_.data(), DType::kI32, Shape{group_tokens()}};
}

}  // namespace trireme
