// A model that guesses for another one (serving/scheduler/model_drafter.h), on an executor and a
// cache of its own. When it fails, guessing ends and nothing else.
#pragma once

#include <mutex>

#include "serving/engine/model_executor.h"
#include "serving/scheduler/drafter.h"

namespace trireme {

// This process holds the whole model. config: as of a ModelExecutor; sequences longer than
// limits.length get no guesses. The context is this drafter's alone: its arena lies as the draft's
// passes need it. turn: held while it computes, by the drafters of several engines.
std::unique_ptr<Drafter> make_model_drafter(const Model& model, ParameterStore& params, Ctx& ctx,
                                            const ExecutorConfig& config,
                                            std::shared_ptr<std::mutex> turn = {});

}  // namespace trireme
