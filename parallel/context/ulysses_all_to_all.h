// All-to-all of heads as in DeepSpeed-Ulysses (Jacobs et al. 2023): a group of u ranks exchanges
// tokens for heads. Before it a rank has its own T tokens with all H heads; after it, the group's u
// T tokens with H / u heads, in row order (ContextPlan::order), so that attention runs as if the
// group were one rank.
//
// Query heads are assigned in order; u and Hkv divide H. Key/value heads follow their queries. If u
// divides Hkv a rank gets Hkv / u; otherwise heads are repeated, and their gradients are summed by
// the owner of the tokens. Each rank then has Kl slots (Kl = Hkv / u without repetition); slot j of
// member i holds key/value head source(i, j).
//
// With W = (H / u + 2 Kl) D elements per token of w bytes, each rank sends (u - 1) T W w bytes for
// q, k, v and (u - 1) T (H / u) D w bytes for the output; backward sends the same.
#pragma once

#include "parallel/comm/communicator.h"
#include "parallel/context/context_plan.h"

namespace trireme {

// Assignment of H query heads and Hkv key/value heads to u ranks.
struct HeadShares {
  int ranks = 1;
  int64_t heads, kv_heads;              // H, Hkv
  int64_t local_heads, local_kv_heads;  // H / u, Kl
  HeadShares(int64_t heads, int64_t kv_heads, int ranks);
  int64_t source(int member, int64_t slot) const;
};

class UlyssesAllToAll {
 public:
  explicit UlyssesAllToAll(Communicator& group) : group_(group) {}

  // qkv (u T, H / u + 2 Kl, D) = q, then k, then v of this rank's heads for the group's tokens.
  void gather_qkv(Ctx& ctx, const Tensor& qkv, const ConstTensor& q, const ConstTensor& k,
                  const ConstTensor& v, const ContextPlan& plan) const;
  // to (u T, H / u, D) = this rank's heads of the members' from (T, H, D).
  void gather(Ctx& ctx, const Tensor& to, const ConstTensor& from, const ContextPlan& plan) const;
  // Inverse of gather: to (T, H, D) from each member's (u T, H / u, D).
  void scatter(Ctx& ctx, const Tensor& to, const ConstTensor& from, const ContextPlan& plan) const;
  // dq, dk, dv of this rank's tokens from each member's d_qkv, the gradient of its gather_qkv()
  // result. Slots of one key/value head are summed in the order of members, in float32, and rounded
  // once.
  void scatter_qkv(Ctx& ctx, const Tensor& dq, const Tensor& dk, const Tensor& dv,
                   const ConstTensor& d_qkv, const ContextPlan& plan) const;

 private:
  Activation all_to_all(Ctx& ctx, const ConstTensor& sent) const;
  Communicator& group_;
};

}  // namespace trireme
