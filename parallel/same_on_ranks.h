// Settings that all ranks of a run must share, compared once they are connected. Ranks read command
// lines and files by themselves, and a rank that read different ones would compute something else
// without a word.
#pragma once

#include <map>
#include <string>

#include "parallel/comm/communicator.h"

namespace trireme {

// Name of a fact, such as "optimizer.params.lr", and its value as text.
using RankFacts = std::map<std::string, std::string>;

// Collective. Where a rank has a fact that another lacks or has another value of, every rank throws
// as of agreed() (parallel/agree.h): an InputError that names the facts, their values and who has
// which. Two short exchanges where all are the same.
void require_same_on_ranks(Communicator& world, const RankFacts& mine);

// The differences that require_same_on_ranks() lists, "" where all ranks have the same facts.
std::string differing_facts(const std::vector<RankFacts>& of_ranks);

}  // namespace trireme
