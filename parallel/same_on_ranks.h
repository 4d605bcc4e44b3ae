// What all ranks of a run must have been started with, compared once they are connected. Ranks read
// command lines and files by themselves, and one that read others would compute something else
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

// What require_same_on_ranks() says of the facts of each rank, "" where they are the same.
std::string differing_facts(const std::vector<RankFacts>& of_ranks);

}  // namespace trireme
