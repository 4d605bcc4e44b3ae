#include "parallel/context/ulysses_all_to_all.h"

#include <numeric>

#include "engine/ops/rows/copy_rows.h"
#include "engine/ops/rows/sum_rows.h"

namespace trireme {
namespace {

// Heads [begin, begin + count) of every token as columns.
template <class T>
T columns(const T& t, int64_t begin, int64_t count) {
  return heads_as_columns(T(t.slice(1, begin, begin + count)));
}

// Member i's part of a tensor (u T, heads, D).
template <class T>
T part(const T& t, int member, int64_t tokens) {
  return t.slice(0, member * tokens, (member + 1) * tokens);
}

}  // namespace

HeadShares::HeadShares(int64_t all, int64_t all_kv, int members)
    : ranks(members), heads(all), kv_heads(all_kv) {
  TRIREME_CHECK(heads % ranks == 0 && heads % kv_heads == 0, heads,
                " query heads are not a multiple of ", ranks, " ranks and of ", kv_heads,
                " key/value heads");
  local_heads = heads / ranks;
  // Largest runs of a rank's queries that share a key/value head, wherever the rank's queries
  // start.
  local_kv_heads = local_heads / std::gcd(local_heads, heads / kv_heads);
}

int64_t HeadShares::source(int member, int64_t slot) const {
  const int64_t query = member * local_heads + slot * (local_heads / local_kv_heads);
  return query / (heads / kv_heads);
}

// Sends piece i of `sent` to member i; the result has one piece from each member.
Activation UlyssesAllToAll::all_to_all(Ctx& ctx, const ConstTensor& sent) const {
  Activation received = ctx.allocate("ulysses.received", sent.dtype(), sent.shape());
  if (ctx.planning()) return received;
  const TimeScope scope(ctx.profile, TimeCategory::kCommunication);
  group_.all_to_all(received, sent);
  return received;
}

void UlyssesAllToAll::gather_qkv(Ctx& ctx, const Tensor& qkv, const ConstTensor& q,
                                 const ConstTensor& k, const ConstTensor& v,
                                 const ContextPlan& plan) const {
  const HeadShares shares(q.size(1), k.size(1), group_.size());
  const int64_t tokens = q.size(0), local = shares.local_heads, slots = shares.local_kv_heads;
  check_operand("ulysses", "qkv", qkv, q.dtype(),
                {shares.ranks * tokens, local + 2 * slots, q.size(2)});
  Activation sent = ctx.allocate("ulysses.sent", q.dtype(), qkv.shape());
  for (int i = 0; i < shares.ranks; ++i) {
    const Tensor to = part(*sent, i, tokens);
    copy_rows(ctx, columns(to, 0, local), columns(q, i * local, local));
    for (int64_t j = 0; j < slots; ++j) {
      const int64_t head = shares.source(i, j);
      copy_rows(ctx, columns(to, local + j, 1), columns(k, head, 1));
      copy_rows(ctx, columns(to, local + slots + j, 1), columns(v, head, 1));
    }
  }
  const Activation received = all_to_all(ctx, *sent);
  sent.reset();
  copy_rows(ctx, heads_as_columns(qkv), heads_as_columns(ConstTensor(*received)), {}, plan.order());
}

void UlyssesAllToAll::gather(Ctx& ctx, const Tensor& to, const ConstTensor& from,
                             const ContextPlan& plan) const {
  const int64_t tokens = from.size(0), local = to.size(1);
  check_operand("ulysses", "to", to, from.dtype(),
                {group_.size() * tokens, from.size(1) / group_.size(), from.size(2)});
  Activation sent = ctx.allocate("ulysses.sent", to.dtype(), to.shape());
  for (int i = 0; i < group_.size(); ++i)
    copy_rows(ctx, heads_as_columns(part(*sent, i, tokens)), columns(from, i * local, local));
  const Activation received = all_to_all(ctx, *sent);
  sent.reset();
  copy_rows(ctx, heads_as_columns(to), heads_as_columns(ConstTensor(*received)), {}, plan.order());
}

void UlyssesAllToAll::scatter(Ctx& ctx, const Tensor& to, const ConstTensor& from,
                              const ContextPlan& plan) const {
  const int64_t tokens = to.size(0), local = from.size(1);
  check_shape("ulysses", "from", from,
              {group_.size() * tokens, to.size(1) / group_.size(), to.size(2)});
  Activation sent = ctx.allocate("ulysses.sent", from.dtype(), from.shape());
  copy_rows(ctx, heads_as_columns(*sent), heads_as_columns(from), plan.order());
  const Activation received = all_to_all(ctx, *sent);
  sent.reset();
  for (int i = 0; i < group_.size(); ++i)
    copy_rows(ctx, columns(to, i * local, local), heads_as_columns(part(*received, i, tokens)));
}

namespace {

// d[t, h] = sum over members i and slots j with source(i, j) = h of received[i, t, first + j].
void sum_slots(Ctx& ctx, const Tensor& d, const ConstTensor& received, const HeadShares& shares,
               int64_t first) {
  const int64_t tokens = d.size(0);
  std::vector<std::vector<ConstTensor>> terms(static_cast<size_t>(shares.kv_heads));
  for (int i = 0; i < shares.ranks; ++i)
    for (int64_t j = 0; j < shares.local_kv_heads; ++j)
      terms[static_cast<size_t>(shares.source(i, j))].push_back(
          columns(part(received, i, tokens), first + j, 1));
  for (int64_t h = 0; h < shares.kv_heads; ++h)
    sum_rows(ctx, columns(d, h, 1), terms[static_cast<size_t>(h)]);
}

}  // namespace

void UlyssesAllToAll::scatter_qkv(Ctx& ctx, const Tensor& dq, const Tensor& dk, const Tensor& dv,
                                  const ConstTensor& d_qkv, const ContextPlan& plan) const {
  const HeadShares shares(dq.size(1), dk.size(1), group_.size());
  const int64_t tokens = dq.size(0), local = shares.local_heads, slots = shares.local_kv_heads;
  Activation sent = ctx.allocate("ulysses.sent", d_qkv.dtype(), d_qkv.shape());
  copy_rows(ctx, heads_as_columns(*sent), heads_as_columns(d_qkv), plan.order());
  const Activation received = all_to_all(ctx, *sent);
  sent.reset();
  for (int i = 0; i < shares.ranks; ++i)
    copy_rows(ctx, columns(dq, i * local, local),
              columns(ConstTensor(part(*received, i, tokens)), 0, local));
  sum_slots(ctx, dk, *received, shares, local);
  sum_slots(ctx, dv, *received, shares, local + slots);
}

}  // namespace trireme
