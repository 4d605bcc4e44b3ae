#include "engine/ops/context.h"

#include "engine/ops/gemm/gemm.h"

namespace trireme {

Ctx::Ctx(int team_width, const char* arena_name, cuda::Context* device)
    : threads(team_width),
      gpu(device),
      arena(arena_name, memory()),
      gemm(std::make_unique<GemmEngine>()) {
  TRIREME_CHECK(team_width >= 1, "a rank needs at least one thread, got ", team_width);
}

Ctx::~Ctx() = default;

}  // namespace trireme
