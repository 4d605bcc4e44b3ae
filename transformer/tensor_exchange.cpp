#include "transformer/tensor_exchange.h"

namespace trireme {

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

void add_tensor_ranks(Pass& pass, const Tensor& y, const Tensor& partial) {
  if (pass.groups == nullptr || pass.groups->layout.tp.size == 1 || pass.ctx.planning()) return;
  const TimeScope scope(pass.ctx.profile, TimeCategory::kCommunication);
  if (needs_partial_sums(pass))
    pass.groups->tp->reduce_scatter(y, partial);
  else
    pass.groups->tp->all_reduce(y);
}

}  // namespace trireme
