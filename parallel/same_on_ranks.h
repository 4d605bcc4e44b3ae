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
// agreed() does (parallel/agree.h): an InputError with the facts, their values and the ranks that
// have them. When all facts agree, exchanges only a checksum per rank.
void require_same_on_ranks(Communicator& world, const RankFacts& mine);

// Differences that require_same_on_ranks() lists, one a line; "" if all ranks have the same facts.
std::string differing_facts(const std::vector<RankFacts>& of_ranks);

}  // namespace trireme
