#include "training/run/memory_plan.h"

#include <algorithm>

#include "parallel/comm/world.h"
#include "training/step/train_step.h"

namespace trireme {
namespace {

bool plans_activations(const ModelConfig& m) {
  const int64_t heads = std::max(m.num_heads, m.num_kv_heads) * m.head_dim;
  const int64_t width = std::max(
      {m.vocab_size, m.hidden_size, m.intermediate_size, heads, m.moe.experts,
       m.moe.intermediate_size, m.moe.shared_intermediate_size, m.latent.q_rank, m.latent.kv_rank});
  return m.num_layers <= kMaxPlannedLayers && width <= kMaxPlannedWidth;
}

}  // namespace

TrainingMemory plan_training_memory(const ModelConfig& model, DType dtype,
                                    int64_t sequence_length) {
  RunConfig config;
  config.model = model;
  config.dtype = dtype;
  config.micro_batch_size = config.train_batch_size = 1;
  config.gradient_accumulation_steps = 1;
  config.sequence_length = sequence_length;
  config.train_steps = 1;
  WorldOptions single;
  single.backend = "single";
  const std::unique_ptr<World> world = make_world(single);
  const Groups groups(world->world(), config.parallel);
  Ctx ctx(1, "activations");
  TrainState state(config, groups.layout);
  TrainingMemory memory{.parameters = state.store.value_bytes(),
                        .gradients = state.store.gradient_bytes(),
                        .optimizer = state.optimizer.state_bytes(),
                        .activations = -1};
  if (plans_activations(model))
    memory.activations = TrainStep(config, state, groups, ctx).plan().capacity;
  return memory;
}

}  // namespace trireme
