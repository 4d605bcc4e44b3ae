// ContextPlan: what one rank has to know about a micro-batch's documents to attend over the tokens
// of all context-parallel ranks. Computed on the host, by every rank for itself, from the whole
// micro-batch; nothing of it travels.
#pragma once

#include "parallel/context/token_slices.h"

namespace trireme {

class ContextPlan {
 public:
  // Of context rank `rank`, whose heads are exchanged within groups of `ulysses` neighbours. Takes
  // all its memory here. Until build() no query sees a key: good for a planning run. windows:
  // whether some layers attend over a window of keys.
  ContextPlan(const ContextLayout& layout, int rank, int ulysses, bool windows = false);

  // cu_seqlens (documents + 1) offsets from 0 to B * S; rows (B * S) the global row of each token,
  // which keys dropout (may be empty where no dropout acts). Both of the micro-batch without
  // padding.
  void build(std::span<const int32_t> cu_seqlens, std::span<const int64_t> rows);
  // On a GPU: copies what build() found to where the ops below read it. Else does nothing.
  void place(Ctx& ctx);

  const ContextLayout& layout() const { return layout_; }
  int ulysses() const { return ulysses_; }
  int ring() const { return group_layout_.ranks; }
  int64_t local_tokens() const { return layout_.local_tokens(); }
  // (local_tokens) number of each local token in the micro-batch, -1 for padding.
  const std::vector<int64_t>& tokens() const { return tokens_; }
  // Tokens a rank attends with once heads are exchanged: ulysses() * local_tokens().
  int64_t group_tokens() const { return group_layout_.local_tokens(); }

  // Step t of the ring: this rank's queries against the keys of the rank t places before it, in
  // parts(window) calls of the op. window: AttentionArgs::window. The views hold until the next
  // build().
  int parts(int64_t window) const;
  AttentionSegments step(int t, int64_t window = 0, int part = 0) const;
  // (group_tokens) int64: global row of each query, 0 for padding.
  ConstTensor global_rows() const;
  // (group_tokens) int32: token i, in the order of rows, is the order[i]-th of those received.
  ConstTensor order() const;

 private:
  struct Step {
    // Those without a window, then each part of those with one.
    std::vector<std::vector<AttentionSegment>> segments;
    std::vector<int32_t> key_position;
  };
  ContextLayout layout_, group_layout_;
  int rank_, ulysses_;
  int window_parts_;  // 0: without windows
  std::vector<Step> steps_;
  std::vector<int64_t> tokens_, group_tokens_, global_rows_;
  std::vector<int32_t> order_;
  // A GPU's copies: of each step the lists of segments (up to one a token) and key positions, then
  // the rows, then the order.
  Buffer on_device_;
  template <class T>
  ConstTensor view(const std::vector<T>& host, int64_t place, DType dtype,
                   const Shape& shape) const;
  int64_t list_bytes() const { return kSegmentFields * 4 * group_tokens(); }
  int64_t step_bytes() const { return (1 + window_parts_) * list_bytes() + 4 * group_tokens(); }
};

}  // namespace trireme
