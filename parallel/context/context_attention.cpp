#include "parallel/context/context_attention.h"

#include "engine/ops/rows/elementwise.h"

namespace trireme {

ContextAttention::ContextAttention(Communicator& cp, int ulysses)
    : ulysses_(ulysses), ring_(&cp), ulysses_group_(nullptr) {
  TRIREME_CHECK(ulysses > 0 && cp.size() % ulysses == 0, "the Ulysses size ", ulysses,
                " does not divide the ", cp.size(), " context ranks");
  if (ulysses == 1) return;
  const int group = cp.rank() / ulysses, member = cp.rank() % ulysses;
  own_ulysses_group_ = cp.split(group, member, concat(cp.name(), ", heads ", group));
  own_ring_ = cp.split(member, group, concat(cp.name(), ", ring ", member));
  ulysses_group_ = own_ulysses_group_.get();
  ring_ = own_ring_.get();
}

AttentionArgs ContextAttention::args_of_share(const ContextPlan& plan, const AttentionArgs& args,
                                              int64_t local_heads, int64_t heads) const {
  AttentionArgs out = args;
  out.global_index = plan.global_indices();
  out.total_heads = args.total_heads > 0 ? args.total_heads : args.first_head + heads;
  if (ulysses_ == 1) return out;
  const int64_t first = ulysses_group_->rank() * local_heads;
  out.first_head += first;
  if (args.sinks.present()) out.sinks = args.sinks.slice(0, first, first + local_heads);
  if (args.d_sinks.present()) out.d_sinks = args.d_sinks.slice(0, first, first + local_heads);
  return out;
}

namespace {

// Views of q, k and v in a packed (T, H + 2 Hkv, D).
template <class T>
struct Packed {
  T q, k, v;
  Packed(const T& qkv, const HeadShares& shares)
      : q(qkv.slice(1, 0, shares.local_heads)),
        k(qkv.slice(1, shares.local_heads, shares.local_heads + shares.local_kv_heads)),
        v(qkv.slice(1, shares.local_heads + shares.local_kv_heads, qkv.size(1))) {}
};

void check_plan(const ContextPlan& plan, const ContextAttention& attention, const ConstTensor& q) {
  TRIREME_CHECK(plan.ulysses() == attention.ulysses() && q.size(0) == plan.local_tokens(),
                "context attention: q has ", q.size(0), " tokens and the Ulysses size is ",
                attention.ulysses(), ", expected the plan's ", plan.local_tokens(), " and ",
                plan.ulysses());
}

}  // namespace

void ContextAttention::forward(Ctx& ctx, const Tensor& out, const ConstTensor& q,
                               const ConstTensor& k, const ConstTensor& v, const ContextPlan& plan,
                               const AttentionArgs& args, Saved* saved) const {
  check_plan(plan, *this, q);
  const HeadShares shares(q.size(1), k.size(1), ulysses_);
  const AttentionArgs own = args_of_share(plan, args, shares.local_heads, shares.heads);
  const int64_t tokens = plan.group_tokens(), width = q.size(2);
  Activation lse =
      ctx.allocate("context.lse", sum_dtype(q.dtype()), Shape{shares.local_heads, tokens});
  if (ulysses_ == 1) {
    ring_attention_forward(ctx, *ring_, out, lse, q, k, v, plan, own);
    if (saved != nullptr) saved->lse = std::move(lse);
    return;
  }
  const UlyssesAllToAll heads(*ulysses_group_);
  Activation qkv =
      ctx.allocate("context.qkv", q.dtype(),
                   Shape{tokens, shares.local_heads + 2 * shares.local_kv_heads, width});
  heads.gather_qkv(ctx, qkv, q, k, v, plan);
  Activation mine =
      ctx.allocate("context.out", q.dtype(), Shape{tokens, shares.local_heads, width});
  const Packed<ConstTensor> packed(*qkv, shares);
  ring_attention_forward(ctx, *ring_, mine, lse, packed.q, packed.k, packed.v, plan, own);
  heads.scatter(ctx, out, mine, plan);
  if (saved != nullptr) *saved = {std::move(lse), std::move(qkv), std::move(mine)};
}

void ContextAttention::backward(Ctx& ctx, const Tensor& dq, const Tensor& dk, const Tensor& dv,
                                const ConstTensor& dout, const ConstTensor& out,
                                const ConstTensor& q, const ConstTensor& k, const ConstTensor& v,
                                const ContextPlan& plan, const AttentionArgs& args,
                                const Saved& saved) const {
  check_plan(plan, *this, dq);
  const HeadShares shares(dq.size(1), dk.size(1), ulysses_);
  const AttentionArgs own = args_of_share(plan, args, shares.local_heads, shares.heads);
  if (ulysses_ == 1)
    return ring_attention_backward(ctx, *ring_, dq, dk, dv, dout, out, saved.lse, q, k, v, plan,
                                   own);
  // Other ranks have the gradients of the other heads.
  if (args.sinks.present() && !args.accumulate_sinks) fill_zero(ctx, args.d_sinks);
  const UlyssesAllToAll heads(*ulysses_group_);
  Activation d_mine = ctx.allocate("context.d_out", dout.dtype(), saved.out->shape());
  heads.gather(ctx, d_mine, dout, plan);
  const Activation d_qkv = ctx.allocate("context.d_qkv", dout.dtype(), saved.qkv->shape());
  const Packed<Tensor> d(*d_qkv, shares);
  const Packed<ConstTensor> packed(*saved.qkv, shares);
  ring_attention_backward(ctx, *ring_, d.q, d.k, d.v, d_mine, saved.out, saved.lse, packed.q,
                          packed.k, packed.v, plan, own);
  d_mine.reset();
  heads.scatter_qkv(ctx, dq, dk, dv, d_qkv, plan);
}

}  // namespace trireme
