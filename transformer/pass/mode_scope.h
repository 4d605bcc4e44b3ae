// Mode of a context for the lifetime of an object, also if an exception ends it.
#pragma once

#include "engine/ops/context.h"

namespace trireme {

class ModeScope {
 public:
  ModeScope(Ctx& ctx, Mode mode) : ctx_(ctx), before_(ctx.mode) { ctx.mode = mode; }
  ~ModeScope() { ctx_.mode = before_; }
  ModeScope(const ModeScope&) = delete;
  ModeScope& operator=(const ModeScope&) = delete;

 private:
  Ctx& ctx_;
  Mode before_;
};

}  // namespace trireme
