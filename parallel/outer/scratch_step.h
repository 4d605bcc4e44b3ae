// Work that needs scratch of a context's arena, as a step of its own.
#pragma once

#include "engine/ops/context.h"

namespace trireme {

// plan: with whose capacity the arena is reserved.
template <class Work>
void in_scratch_step(Ctx& ctx, const ArenaPlan& plan, const Work& work) {
  ctx.arena.begin_step(plan);
  try {
    const Arena::Region scratch(ctx.arena, "outer rounds");
    work();
  } catch (...) {
    ctx.arena.abandon_step();  // frees all allocations, in any order
    throw;
  }
  ctx.arena.end_step();
}

// Planning run of the same work.
template <class Work>
ArenaPlan plan_scratch_step(Ctx& ctx, const Work& work) {
  ctx.arena.begin_planning();
  {
    const Arena::Region scratch(ctx.arena, "outer rounds");
    work();
  }
  return ctx.arena.end_planning();
}

}  // namespace trireme
