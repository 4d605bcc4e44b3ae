#include "parallel/context/context_plan.h"

#include "engine/ops/rows/transfer.h"

namespace trireme {

static_assert(sizeof(AttentionSegment) == kSegmentFields * sizeof(int32_t));

ContextPlan::ContextPlan(const ContextLayout& layout, int rank, int ulysses,
                         const ContextSpans& spans)
    : layout_(layout),
      group_layout_(layout.grouped(ulysses)),
      rank_(rank),
      ulysses_(ulysses),
      window_parts_(spans.windows ? trireme::window_parts(group_layout_) : 0),
      chunk_(spans.chunk),
      steps_(static_cast<size_t>(group_layout_.ranks)),
      tokens_(tokens_of_rank(layout, rank)),
      group_tokens_(tokens_of_rank(group_layout_, rank / ulysses)),
      global_indices_(group_tokens_.size()),
      order_(order_of_group(layout, ulysses, rank / ulysses)) {
  for (Step& step : steps_) {
    step.segments.resize(1 + static_cast<size_t>(window_parts_));
    for (std::vector<AttentionSegment>& list : step.segments)
      list.reserve(group_tokens_.size());  // there are no more documents than tokens
    step.key_position.resize(group_tokens_.size());
  }
  if (chunk_ > 0) chunked_ = std::make_unique<ContextPlan>(layout, rank, ulysses);
}

void ContextPlan::build(std::span<const int32_t> cu_seqlens, std::span<const int64_t> rows) {
  const int64_t all = layout_.rows * layout_.length;
  TRIREME_CHECK(!cu_seqlens.empty() && cu_seqlens.front() == 0 && cu_seqlens.back() == all,
                "documents do not cover the ", all, " tokens of the micro-batch");
  TRIREME_CHECK(rows.empty() || std::ssize(rows) == all, rows.size(),
                " global token indices, expected one for each of ", all, " tokens");
  const int group = rank_ / ulysses_, ring = group_layout_.ranks;
  for (int t = 0; t < ring; ++t) {
    const int source = (group - t + ring) % ring;
    Step& step = steps_[static_cast<size_t>(t)];
    segments_between(group_layout_, group, source, cu_seqlens, step.segments[0]);
    for (int part = 0; part < window_parts_; ++part)
      window_segments_between(group_layout_, group, source, part, cu_seqlens,
                              step.segments[1 + static_cast<size_t>(part)]);
    key_positions(group_layout_, source, cu_seqlens, step.key_position);
  }
  if (chunked_) chunked_->build(chunk_offsets(cu_seqlens, chunk_), rows);
  if (rows.empty()) return;
  for (size_t i = 0; i < group_tokens_.size(); ++i)
    global_indices_[i] = group_tokens_[i] < 0 ? 0 : rows[static_cast<size_t>(group_tokens_[i])];
}

void ContextPlan::copy_to_device(Ctx& ctx) {
  if (ctx.gpu == nullptr) return;
  if (chunked_) chunked_->copy_to_device(ctx);
  const int64_t n = group_tokens(), ring = std::ssize(steps_);
  if (on_device_.data() == nullptr)
    on_device_ = Buffer("context plan", ring * step_bytes() + n * (8 + 4), Memory::kDevice);
  const auto put = [&](const auto& host, DType dtype, int64_t place) {
    const Shape shape{std::ssize(host)};
    transfer(ctx, on_device_.tensor(dtype, shape, place), ConstTensor(host.data(), dtype, shape));
  };
  for (int64_t t = 0; t < ring; ++t) {
    const Step& step = steps_[static_cast<size_t>(t)];
    int64_t at = t * step_bytes();
    for (const std::vector<AttentionSegment>& list : step.segments) {
      const Shape shape{std::ssize(list) * kSegmentFields};
      transfer(ctx, on_device_.tensor(DType::kI32, shape, at),
               ConstTensor(list.data(), DType::kI32, shape));
      at += list_bytes();
    }
    put(step.key_position, DType::kI32, at);
  }
  put(global_indices_, DType::kI64, ring * step_bytes());
  put(order_, DType::kI32, ring * step_bytes() + 8 * n);
}

template <class T>
ConstTensor ContextPlan::view(const std::vector<T>& host, int64_t place, DType dtype,
                              const Shape& shape) const {
  if (on_device_.data() != nullptr) return on_device_.tensor(dtype, shape, place);
  return {host.data(), dtype, shape};
}

int ContextPlan::parts(int64_t window) const {
  TRIREME_CHECK(window == 0 || window_parts_ > 0, "a window of ", window,
                " keys needs a plan made with windows");
  return window == 0 ? 1 : window_parts_;
}

AttentionSegments ContextPlan::step(int t, int64_t window, int part) const {
  TRIREME_CHECK(part >= 0 && part < parts(window), "part ", part, " of ", parts(window));
  const Step& step = steps_.at(static_cast<size_t>(t));
  const int number = window == 0 ? 0 : 1 + part;
  const std::vector<AttentionSegment>& list = step.segments[static_cast<size_t>(number)];
  const int64_t place = t * step_bytes();
  AttentionSegments out;
  out.list =
      view(list, place + number * list_bytes(), DType::kI32, {std::ssize(list), kSegmentFields});
  out.key_position = view(step.key_position, place + (1 + window_parts_) * list_bytes(),
                          DType::kI32, {group_tokens()});
  out.accumulate = t > 0 || part > 0;
  return out;
}

ConstTensor ContextPlan::global_indices() const {
  return view(global_indices_, std::ssize(steps_) * step_bytes(), DType::kI64, {group_tokens()});
}

ConstTensor ContextPlan::order() const {
  return view(order_, std::ssize(steps_) * step_bytes() + 8 * group_tokens(), DType::kI32,
              {group_tokens()});
}

}  // namespace trireme
