// Pass: what a layer needs to run once, besides its input: the context, the parameters, the tokens
// and, where the model is split over ranks, the groups that share it.
#pragma once

#include "engine/ops/context.h"
#include "parallel/groups.h"
#include "parallel/parameter_store.h"
#include "transformer/kv_cache.h"
#include "transformer/tokens.h"

namespace trireme {

struct Pass {
  Ctx& ctx;
  ParameterStore& params;
  const Tokens& tokens;
  const Groups* groups = nullptr;  // nullptr: one rank holds the whole model
  KvCache* cache = nullptr;        // inference only

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
