// Collective step that fails on all ranks if it fails on any, so that no rank waits for one that
// has failed.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "engine/io/sharded_checkpoint.h"

namespace trireme {

// Every rank runs `work`; rank 0 receives all results in rank order and decides; every rank returns
// the decision. If `work` on any rank or `decide` throws, rank 0 runs `undo` and every rank throws
// an error that names the rank (InputError if every failure was one that the user can fix).
nlohmann::json agree(
    const CheckpointRanks& ranks, const std::function<nlohmann::json()>& work,
    const std::function<nlohmann::json(const std::vector<nlohmann::json>&)>& decide,
    const std::function<void()>& undo);

}  // namespace trireme
