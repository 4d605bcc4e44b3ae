// Drafter of a draft model (serving/scheduler/model_drafter.h), with its own executor and KV cache.
// If it fails, only speculation ends.
#pragma once

#include <mutex>

#include "serving/engine/model_executor.h"
#include "serving/scheduler/drafter.h"

namespace trireme {

// Makes a drafter from a model that is not divided over ranks. config: as for a ModelExecutor;
// sequences longer than limits.length get no drafts. ctx must not be shared: its arena is laid out
// for the draft model's passes. turn: mutex that the drafters of several engines lock while they
// compute; nullptr: none.
std::unique_ptr<Drafter> make_model_drafter(const Model& model, ParameterStore& params, Ctx& ctx,
                                            const ExecutorConfig& config,
                                            std::shared_ptr<std::mutex> turn = {});

}  // namespace trireme
