// Connection of a command's ranks, with a check that all of them run the same command.
#pragma once

#include <memory>

#include "parallel/comm/world.h"
#include "parallel/same_on_ranks.h"

namespace CLI {
class App;
}  // namespace CLI

namespace trireme {

// Facts that must be the same on all ranks: the version of the program, the command, and its
// options from the command line or options file. Excludes options that may differ between ranks
// (--threads, --rank-address), those that only rank 0 uses (listening address, TLS files, allowed
// origins, API keys, access to metrics), and those of a run configuration (--config, --set), whose
// contents are compared instead.
RankFacts facts_of_command(const CLI::App& command);

// Connects the ranks, sets the rank of the log, and checks that `facts` are the same on all ranks.
// Throws as before_connecting() (parallel/agree.h) and require_same_on_ranks()
// (parallel/same_on_ranks.h).
std::unique_ptr<World> connect_ranks(const WorldOptions& options, const RankFacts& facts);

}  // namespace trireme
