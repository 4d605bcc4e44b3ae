// Plan of one rank for attention over a micro-batch's documents across all context-parallel ranks.
// Every rank computes it on the host from the whole micro-batch, without communication.
#pragma once

#include <memory>

#include "parallel/context/token_slices.h"

namespace trireme {

// Spans that some layers of the model attend to in place of all earlier tokens of the document.
struct ContextSpans {
  bool windows = false;  // a window of keys
  int64_t chunk = 0;     // the chunk of that many tokens (chunk_offsets()); 0: no such layers
};

class ContextPlan {
 public:
  // rank: context rank. ulysses: number of adjacent ranks that exchange heads. Allocates all host
  // memory here, except that for the offsets of chunks. Before build() no query sees a key, which
  // suffices for a planning run.
  ContextPlan(const ContextLayout& layout, int rank, int ulysses, const ContextSpans& spans = {});

  // cu_seqlens: (documents + 1) offsets from 0 to B * S. rows: (B * S) global token index of each
  // token, by which dropout is drawn; empty if there is no dropout. Both describe the micro-batch
  // without padding.
  void build(std::span<const int32_t> cu_seqlens, std::span<const int64_t> rows);
  // GPU only: copies the result of build() to device memory, from which the ops read it.
  void copy_to_device(Ctx& ctx);

  // Plan for layers whose attention stays inside chunks; only with ContextSpans::chunk.
  const ContextPlan& chunked() const { return *chunked_; }

  const ContextLayout& layout() const { return layout_; }
  int ulysses() const { return ulysses_; }
  int ring() const { return group_layout_.ranks; }  // ranks of the ring: context ranks / ulysses()
  int64_t local_tokens() const { return layout_.local_tokens(); }
  // (local_tokens) number of each local token in the micro-batch, -1 for padding.
  const std::vector<int64_t>& tokens() const { return tokens_; }
  // Tokens of a rank during attention, after the Ulysses all-to-all: ulysses() * local_tokens().
  int64_t group_tokens() const { return group_layout_.local_tokens(); }

  // Step t of the ring, 0 <= t < ring(): this rank's queries and the keys of the rank t positions
  // before it, in parts(window) calls of the op. window: AttentionArgs::window, in tokens; 0: none.
  // The views are valid until the next build().
  int parts(int64_t window) const;
  AttentionSegments step(int t, int64_t window = 0, int part = 0) const;
  // (group_tokens) int64: global token index of each query; 0 for padding and without dropout.
  ConstTensor global_indices() const;
  // (group_tokens) int32: token i in row order is token order[i] as received.
  ConstTensor order() const;

 private:
  struct Step {
    // The list without a window, then one list per part with a window.
    std::vector<std::vector<AttentionSegment>> segments;
    std::vector<int32_t> key_position;
  };
  ContextLayout layout_, group_layout_;
  int rank_, ulysses_;
  int window_parts_;  // 0: no windows
  int64_t chunk_;
  std::unique_ptr<ContextPlan> chunked_;
  std::vector<Step> steps_;
  std::vector<int64_t> tokens_, group_tokens_, global_indices_;
  std::vector<int32_t> order_;
  // Copies on the GPU: for each step the segment lists (up to one segment per token) and key
  // positions, then the rows, then the order.
  Buffer on_device_;
  template <class T>
  ConstTensor view(const std::vector<T>& host, int64_t place, DType dtype,
                   const Shape& shape) const;
  int64_t list_bytes() const { return kSegmentFields * 4 * group_tokens(); }
  int64_t step_bytes() const { return (1 + window_parts_) * list_bytes() + 4 * group_tokens(); }
};

}  // namespace trireme
