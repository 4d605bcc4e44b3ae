// One collective step whose failure on any rank is the same failure on all, so that no rank waits
// for one that gave up.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "engine/io/sharded_checkpoint.h"

namespace trireme {

// Every rank runs `work`; rank 0 sees all results in rank order and decides; every rank returns the
// decision. If `work` on any rank or `decide` throws, rank 0 runs `undo` and every rank throws an
// error that names the rank (InputError if all that went wrong was the user's to mend).
nlohmann::json agree(
    const CheckpointRanks& ranks, const std::function<nlohmann::json()>& work,
    const std::function<nlohmann::json(const std::vector<nlohmann::json>&)>& decide,
    const std::function<void()>& undo);

}  // namespace trireme
