#include "commands/rank_options.h"

#include <CLI/CLI.hpp>

namespace trireme {

void add_ranks_option(CLI::App& command, int& ranks) {
  command
      .add_option("--ranks", ranks,
                  "Start this many ranks on this machine through mpirun (default: as launched)")
      ->type_name("N")
      ->check(CLI::Range(1, 4096));
}

WorldOptions world_options(const CommConfig& config) {
  WorldOptions options;
  options.backend = config.backend;
  options.comm.algorithm = parse_comm_algorithm(config.algorithm);
  options.comm.ranks_per_node = narrow<int>(config.ranks_per_node);
  options.comm.window_bytes = config.bucket_bytes;
  options.comm.timeout_s = config.timeout_s;
  return options;
}

}  // namespace trireme
