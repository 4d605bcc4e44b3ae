#include "engine/ops/gemm.h"

namespace trireme {
struct GemmEngine::Impl {};
GemmEngine::GemmEngine() : impl(std::make_unique<Impl>()) {}
GemmEngine::~GemmEngine() = default;
}  // namespace trireme
