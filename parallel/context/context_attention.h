// Causal attention over documents whose tokens are distributed over context-parallel ranks.
//
//   p2p      ring attention over all ranks (parallel/context/ring_attention.h)
//   a2a      all-to-all of heads over all ranks (parallel/context/ulysses_all_to_all.h)
//   a2a+p2p  all-to-all of heads inside groups of u neighbours; blocks of keys and values pass
//             around a ring of the groups
// All three give the result of one rank with the whole rows, up to the order of additions.
// docs/design/context-parallelism.md has pictures and formulas.
#pragma once

#include <memory>

#include "parallel/context/ring_attention.h"
#include "parallel/context/ulysses_all_to_all.h"

namespace trireme {

class ContextAttention {
 public:
  // Collective over cp. ulysses divides the size of cp. cp must outlive this object.
  ContextAttention(Communicator& cp, int ulysses);

  // Tensors that backward() needs in addition to the operands of forward().
  struct Saved {
    Activation lse;  // (H / u, plan.group_tokens()), u = ulysses()
    // Only with u > 1, of this rank's share of the heads for all tokens of its group: qkv as in
    // UlyssesAllToAll::gather_qkv(), out (plan.group_tokens(), H / u, D).
    Activation qkv, out;
  };

  // q, out (T, H, D); k, v (T, Hkv, D): this rank's tokens (plan.local_tokens()), with rotary
  // embedding by position in the document; strides as in engine/ops/attention/attention.h, heads
  // adjacent. args.global_index is ignored: the plan's is used; first_head, total_heads and sinks
  // refer to the caller's heads. saved may be null: nothing is kept.
  void forward(Ctx& ctx, const Tensor& out, const ConstTensor& q, const ConstTensor& k,
               const ConstTensor& v, const ContextPlan& plan, const AttentionArgs& args,
               Saved* saved) const;

  // Overwrites dq, dk, dv; none may alias an input. args.d_sinks receives a partial sum, still to
  // be added over cp. Without Ulysses it is over this rank's tokens. With Ulysses it is over the
  // group's tokens for this rank's share of the heads, and 0 for the other heads (with
  // args.accumulate_sinks, these are unchanged). If keeps_inputs(), out, q, k, v are not read and
  // may be absent.
  void backward(Ctx& ctx, const Tensor& dq, const Tensor& dk, const Tensor& dv,
                const ConstTensor& dout, const ConstTensor& out, const ConstTensor& q,
                const ConstTensor& k, const ConstTensor& v, const ContextPlan& plan,
                const AttentionArgs& args, const Saved& saved) const;

  bool keeps_inputs() const { return ulysses_ > 1; }  // Saved has copies of q, k, v and out
  int ulysses() const { return ulysses_; }
  Communicator& ring() const { return *ring_; }
  Communicator& ulysses_group() const { return *ulysses_group_; }

 private:
  AttentionArgs args_of_share(const ContextPlan& plan, const AttentionArgs& args,
                              int64_t local_heads, int64_t heads) const;
  int ulysses_;
  std::unique_ptr<Communicator> own_ring_, own_ulysses_group_;  // null where they are cp itself
  Communicator* ring_;
  Communicator* ulysses_group_;
};

}  // namespace trireme
