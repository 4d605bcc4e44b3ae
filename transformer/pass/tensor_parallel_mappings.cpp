#include "transformer/pass/tensor_parallel_mappings.h"

#include "engine/ops/rows/sum_rows.h"
#include "engine/ops/rows/transfer.h"

namespace trireme {
namespace {

// Exposed communication time: the part of the transfers that does not overlap.
void wait_for(Pass& pass, const Work& work) {
  const TimeScope scope(pass.ctx.profile, TimeCategory::kCommunication);
  work.wait();
}

// Peers of one step in which every rank sends to another rank in every step.
struct Peers {
  Peers(const GroupCoord& self, int step)
      : to((self.index + step) % self.size), from((self.index - step + self.size) % self.size) {}
  int to, from;
};

// Tokens in the share of rank `rank`.
TokenRange share_of(int rank, int64_t rows) { return {rank * rows, (rank + 1) * rows}; }

}  // namespace

AllTokens gather_tokens(Pass& pass, const ConstTensor& x) {
  if (pass.token_split().size == 1) return {Activation(), x};
  Activation all = pass.ctx.allocate("tensor_parallel.all_tokens", x.dtype(),
                                     Shape{pass.tokens.count, x.size(1)});
  if (!pass.ctx.planning()) {
    const TimeScope scope(pass.ctx.profile, TimeCategory::kCommunication);
    pass.groups->tp->all_gather(all, x);
  }
  const ConstTensor view = *all;
  return {std::move(all), view};
}

bool needs_partial_sums(const Pass& pass) { return pass.token_split().size > 1; }

void reduce_over_tensor_ranks(Pass& pass, const Tensor& y, const Tensor& partial) {
  if (pass.groups == nullptr || pass.groups->layout.tp.size == 1 || pass.ctx.planning()) return;
  const TimeScope scope(pass.ctx.profile, TimeCategory::kCommunication);
  if (needs_partial_sums(pass))
    pass.groups->tp->reduce_scatter(y, partial);
  else
    pass.groups->tp->all_reduce(y);
}

bool overlaps_communication(const Pass& pass) {
  constexpr int kMaxRanks = 64;  // limit of sum_rows() on a GPU
  const int size = pass.token_split().size;
  if (size == 1 || size > kMaxRanks) return false;
  if (pass.float8 != nullptr) return false;  // a scale covers all tokens
  return overlaps(pass.groups->layout.tp_comm_overlap, pass.ctx.gpu != nullptr);
}

AllTokens gather_tokens_with(Pass& pass, const ConstTensor& x, const InputProduct& product) {
  if (!overlaps_communication(pass)) {
    AllTokens all = gather_tokens(pass, x);
    product({0, pass.tokens.count}, all);
    return all;
  }
  const GroupCoord self = pass.token_split();
  const int64_t rows = x.size(0);
  Activation all = pass.ctx.allocate("tensor_parallel.all_tokens", x.dtype(),
                                     Shape{pass.tokens.count, x.size(1)});
  std::vector<Work> arrivals(static_cast<size_t>(self.size));
  for (int step = 1; step < self.size && !pass.ctx.planning(); ++step) {
    const Peers peers(self, step);
    arrivals[static_cast<size_t>(step)] = pass.groups->tp->send_recv_async(
        x, peers.to, share_of(peers.from, rows).of(*all), peers.from);
  }
  for (int step = 0; step < self.size; ++step) {
    const TokenRange share = share_of(Peers(self, step).from, rows);
    if (step == 0)
      transfer(pass.ctx, share.of(*all), x);
    else
      wait_for(pass, arrivals[static_cast<size_t>(step)]);
    product(share, share.of(*all));
  }
  const ConstTensor view = *all;
  return {std::move(all), view};
}

ArrivingTokens::ArrivingTokens(Pass& pass, const ConstTensor& x)
    : pass_(pass), x_(x), started_(overlaps_communication(pass)) {
  if (!started_) return;
  Activation all = pass.ctx.allocate("tensor_parallel.all_tokens", x.dtype(),
                                     Shape{pass.tokens.count, x.size(1)});
  const Tensor view = *all;
  all_ = {std::move(all), view};
  if (!pass.ctx.planning()) work_ = pass.groups->tp->all_gather_async(view, x);
}

const ConstTensor& ArrivingTokens::wait() {
  if (started_)
    wait_for(pass_, work_);
  else
    all_ = gather_tokens(pass_, x_);
  return *all_;
}

void sum_over_tensor_ranks_with(Pass& pass, const Tensor& y, const OutputProduct& product) {
  const TokenRange everything{0, pass.tokens.count};
  if (!overlaps_communication(pass))
    return sum_over_tensor_ranks(pass, y, [&](const Tensor& out) { product(everything, out); });
  Ctx& ctx = pass.ctx;
  const GroupCoord self = pass.token_split();
  const int64_t rows = y.size(0);
  const Shape others{pass.tokens.count - rows, y.size(1)};
  const Activation sent = ctx.allocate("tensor_parallel.partial", y.dtype(), others);
  const Activation received = ctx.allocate("tensor_parallel.received", y.dtype(), others);
  std::vector<Work> transfers;
  std::vector<ConstTensor> terms(static_cast<size_t>(self.size));
  for (int step = 1; step < self.size; ++step) {
    const Peers peers(self, step);
    const TokenRange place = share_of(step - 1, rows);
    const Tensor out = place.of(*sent), in = place.of(*received);
    terms[static_cast<size_t>(peers.from)] = in;
    product(share_of(peers.to, rows), out);
    if (!ctx.planning())
      transfers.push_back(pass.groups->tp->send_recv_async(out, peers.to, in, peers.from));
  }
  terms[static_cast<size_t>(self.index)] = y;
  product(share_of(self.index, rows), y);
  for (const Work& work : transfers) wait_for(pass, work);
  sum_rows(ctx, y, terms);
}

}  // namespace trireme
