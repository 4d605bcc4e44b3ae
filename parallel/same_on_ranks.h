// Check that settings agree on all ranks, made once the ranks are connected. Each rank reads the
// command line and files on its own; a rank with different settings would silently compute
// something else.
#pragma once

#include <map>
#include <string>

#include "parallel/comm/communicator.h"

namespace trireme {

// Facts by name, such as "optimizer.params.lr", with the value as text.
using RankFacts = std::map<std::string, std::string>;

// Collective. If a fact is missing on a rank or differs between ranks, every rank throws as
// agreed() does (parallel/agree.h): an InputError with differing_facts(). When all facts agree,
// exchanges only a checksum per rank.
void require_same_on_ranks(Communicator& world, const RankFacts& mine);

// Differences between the facts of all ranks (indexed by rank); "" if there are none. Each begins
// with a line break: "\n  lr: 0.001 on ranks 0, 2; 0.1 on rank 1". A missing fact is "not given".
// Lists at most 20 facts, 8 ranks per value and 80 bytes of a value.
std::string differing_facts(const std::vector<RankFacts>& of_ranks);

}  // namespace trireme
