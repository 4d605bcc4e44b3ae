// The all-to-all of DeepSpeed-Ulysses (Jacobs et al. 2023): a group of u ranks trades tokens for
// heads. Before it a rank has its own T tokens with all H heads, after it the u T tokens of the
// group with H / u heads, in the order of rows (ContextPlan::order), so that attention runs as if
// the group were one rank.
//
// Query heads are dealt in order; u divides H. Key/value heads follow their queries: where u
// divides Hkv a rank gets Hkv / u, else heads are repeated, and their gradients are summed by the
// owner of the tokens. A rank of the group then has Kl slots, Kl = Hkv / u without repetition;
// member i's slot j holds key/value head source(i, j).
//
// With W = (H / u + 2 Kl) D elements a token, each rank sends (u - 1) T W w bytes for q, k, v and
// (u - 1) T (H / u) D w for the output; the backward sends the same.
#pragma once

#include "parallel/comm/communicator.h"
#include "parallel/context/context_plan.h"

namespace trireme {

// How H query and Hkv key/value heads are dealt to u ranks.
struct HeadShares {
  int ranks = 1;
  int64_t heads, kv_heads;              // H, Hkv
  int64_t local_heads, local_kv_heads;  // H / u, Kl
  HeadShares(int64_t heads, int64_t kv_heads, int ranks);
  int64_t source(int member, int64_t slot) const;
};

class HeadExchange {
 public:
  explicit HeadExchange(Communicator& group) : group_(group) {}

  // qkv (u T, H / u + 2 Kl, D) = the group's q, then k, then v of this rank's heads.
  void gather_qkv(Ctx& ctx, const Tensor& qkv, const ConstTensor& q, const ConstTensor& k,
                  const ConstTensor& v, const ContextPlan& plan) const;
  // to (u T, H / u, D) = the group's rows of from (T, H, D).
  void gather(Ctx& ctx, const Tensor& to, const ConstTensor& from, const ContextPlan& plan) const;
  // The way back: to (T, H, D) from each member's (u T, H / u, D).
  void scatter(Ctx& ctx, const Tensor& to, const ConstTensor& from, const ContextPlan& plan) const;
  // dq, dk, dv of the own tokens from each member's gradients d_qkv of what gather_qkv() gave it;
  // slots of one key/value head are summed in the order of members, in float32 and rounded once.
  void scatter_qkv(Ctx& ctx, const Tensor& dq, const Tensor& dk, const Tensor& dv,
                   const ConstTensor& d_qkv, const ContextPlan& plan) const;

 private:
  Activation exchange(Ctx& ctx, const ConstTensor& sent) const;
  Communicator& group_;
};

}  // namespace trireme
