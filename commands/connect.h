// Ranks of a command: connected, and started alike.
#pragma once

#include <memory>

#include "parallel/comm/world.h"
#include "parallel/same_on_ranks.h"

namespace CLI {
class App;
}  // namespace CLI

namespace trireme {

// The program, and the options and arguments that a command was given, by its command line or its
// file of options, but for those that concern a rank alone (its threads, its address) and those
// that name a run's configuration, whose contents are compared.
RankFacts facts_of_command(const CLI::App& command);

// Connects this process's ranks, sets the rank of the log, and compares facts. InputError as of
// before_connecting() and require_same_on_ranks().
std::unique_ptr<World> connect_ranks(const WorldOptions& options, const RankFacts& facts);

}  // namespace trireme
