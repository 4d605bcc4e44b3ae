// Connection of a command's ranks, and a check that all run the same command.
#pragma once

#include <memory>

#include "parallel/comm/world.h"
#include "parallel/same_on_ranks.h"

namespace CLI {
class App;
}  // namespace CLI

namespace trireme {

// Facts of a command: the program, and its options and arguments, from the command line or from its
// options file. Options of a single rank (its threads, its address) are left out. So are options
// that name a run's configuration: its contents are compared instead.
RankFacts facts_of_command(const CLI::App& command);

// Connects this process's ranks, sets the rank of the log, and compares facts. Throws InputError as
// before_connecting() and require_same_on_ranks() do.
std::unique_ptr<World> connect_ranks(const WorldOptions& options, const RankFacts& facts);

}  // namespace trireme
