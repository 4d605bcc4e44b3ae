// Collective step that fails on all ranks if it fails on any, so that no rank waits for one that
// has failed.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "engine/io/sharded_checkpoint.h"

namespace trireme {

// Runs `work` on every rank; rank 0 passes all results, in rank order, to `decide`; every rank
// returns the result of `decide`. If `work` on any rank or `decide` throws, rank 0 runs `undo`,
// whose exceptions are ignored, and every rank throws: an InputError if all failures were
// InputErrors, else an Error. With several ranks it names those on which `work` failed.
nlohmann::json agree(
    const CheckpointRanks& ranks, const std::function<nlohmann::json()>& work,
    const std::function<nlohmann::json(const std::vector<nlohmann::json>&)>& decide,
    const std::function<void()>& undo);

}  // namespace trireme
