#include "commands/training/key_flags.h"

#include <CLI/CLI.hpp>

#include "engine/config/override.h"
#include "training/config/run_config.h"

namespace trireme {

void accept_key_flags(CLI::App& command) { command.allow_extras(); }

std::vector<std::string> with_key_flags(const CLI::App& command,
                                        std::vector<std::string> overrides) {
  std::vector<std::string> options;
  for (const CLI::Option* option : command.get_options())
    for (const std::string& name : option->get_lnames()) options.push_back(name);
  for (const std::string& change : overrides_from_flags(run_schema(), command.remaining(), options))
    overrides.push_back(change);
  return overrides;
}

}  // namespace trireme
