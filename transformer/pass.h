// Pass: what a layer needs to run once, besides its input: the context, the parameters, the tokens.
#pragma once

#include "engine/ops/context.h"
#include "parallel/parameter_store.h"
#include "transformer/kv_cache.h"
#include "transformer/tokens.h"

namespace trireme {

struct Pass {
  Ctx& ctx;
  ParameterStore& params;
  const Tokens& tokens;
  KvCache* cache = nullptr;  // inference only

  // Key of the dropout named `name` in the current step.
  RandomKey dropout_key(const char* name, int layer) const {
    const uint64_t stream = substream(stream_id(name), static_cast<uint64_t>(layer));
    return {ctx.seed, substream(stream, static_cast<uint64_t>(ctx.step))};
  }
};

}  // namespace trireme
