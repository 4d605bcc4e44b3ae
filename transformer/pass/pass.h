// Pass: what a layer needs to run once, besides its input: the context, the parameters, the tokens
// and, where the model is split over ranks, the groups that share it.
#pragma once

#include "engine/ops/context.h"
#include "parallel/groups.h"
#include "parallel/parameter_store.h"
#include "transformer/pass/kv_cache.h"
#include "transformer/pass/router_state.h"
#include "transformer/pass/tokens.h"

namespace trireme {

class Float8State;

struct Pass {
  Ctx& ctx;
  ParameterStore& params;
  const Tokens& tokens;
  const Groups* groups = nullptr;  // nullptr: one rank holds the whole model
  KvCache* cache = nullptr;        // inference only
  // Mixture of experts. routers is set by the model; nullptr: no selection biases, loads are not
  // counted. The losses of routers enter the gradient where loss_scale is given (training).
  RouterState* routers = nullptr;
  ConstTensor loss_scale = {};  // (1) float64: what a token's gradient is multiplied with
  Tensor router_losses = {};    // (4) float64, += as router_losses() says; on all tp ranks alike

  // Training in 8-bit floats: the linear layers of blocks multiply there.
  Float8State* float8 = nullptr;

  // The residual stream holds the rows of `token_split()` of the tokens: all of them, or with
  // sequence parallelism this tensor-parallel rank's share.
  Place token_split() const { return groups == nullptr ? Place{} : groups->layout.token_split(); }
  int64_t residual_rows() const { return tokens.count / token_split().size; }
  // The share's part of a tensor (T, ...) about all tokens.
  ConstTensor residual_part(const ConstTensor& all) const {
    const Place split = token_split();
    const int64_t rows = all.size(0) / split.size;
    return split.size == 1 ? all : all.slice(0, split.index * rows, (split.index + 1) * rows);
  }

  // Key of the dropout named `name` in the current step.
  RandomKey dropout_key(const char* name, int layer) const {
    const uint64_t stream = substream(stream_id(name), static_cast<uint64_t>(layer));
    return {ctx.seed, substream(stream, static_cast<uint64_t>(ctx.step))};
  }
};

}  // namespace trireme
