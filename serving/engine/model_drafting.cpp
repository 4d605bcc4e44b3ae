#include "serving/engine/model_drafting.h"

#include "serving/engine/guarded_drafter.h"
#include "serving/scheduler/model_drafter.h"

namespace trireme {

std::unique_ptr<Drafter> make_model_drafter(const Model& model, ParameterStore& params, Ctx& ctx,
                                            const ExecutorConfig& config,
                                            std::shared_ptr<std::mutex> turn) {
  const StepLimits& limits = config.limits;
  auto drafter = std::make_unique<ModelDrafter>(
      std::make_unique<ModelExecutor>(model, params, ctx, nullptr, config),
      DraftLimits{.sequences = limits.sequences,
                  .step_tokens = limits.tokens,
                  .length = limits.length,
                  .blocks = limits.blocks,
                  .block_tokens = limits.block_tokens});
  return std::make_unique<GuardedDrafter>(std::move(drafter), std::move(turn));
}

}  // namespace trireme
