// Context of one run of a layer, besides its input: the Ctx, the parameters, the tokens and, for a
// model split over ranks, the process groups.
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
  // Mixture of experts. The model sets `routers`; nullptr: no selection biases, and loads are not
  // counted. The routers' losses contribute to the gradient if loss_scale is present (training).
  RouterState* routers = nullptr;
  ConstTensor loss_scale = {};  // (1) float64: factor on a token's gradient
  // (4) float64, += the four losses of router_losses() (engine/ops/moe/router_loss.h): the same on
  // all tp ranks, unchanged on cp ranks above 0.
  Tensor router_losses = {};

  // FP8 training: runs the products of the blocks' linear layers; nullptr: no FP8.
  Float8State* float8 = nullptr;

  // Split of the residual stream's tokens: over the tensor-parallel ranks with sequence
  // parallelism, otherwise none.
  GroupCoord token_split() const {
    return groups == nullptr ? GroupCoord{} : groups->layout.token_split();
  }
  int64_t residual_rows() const { return tokens.count / token_split().size; }
  // Returns this rank's share of a tensor (T, ...) of all tokens, as a view.
  ConstTensor residual_part(const ConstTensor& all) const {
    const GroupCoord split = token_split();
    const int64_t rows = all.size(0) / split.size;
    return split.size == 1 ? all : all.slice(0, split.index * rows, (split.index + 1) * rows);
  }

  // Returns the key of the dropout `name` of `layer` in the current step.
  RandomKey dropout_key(const char* name, int layer) const {
    const uint64_t stream = substream(stream_id(name), static_cast<uint64_t>(layer));
    return {ctx.seed, substream(stream, static_cast<uint64_t>(ctx.step))};
  }
};

}  // namespace trireme
