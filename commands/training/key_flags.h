// Configuration keys as flags: every key of a run's configuration is also a flag of the commands
// that read one: --train-steps 10, --optimizer-params-lr=1e-3.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace trireme {

void accept_key_flags(CLI::App& command);
// `overrides` (of --set), followed by the flags found on the command line. InputError names the
// nearest option or key for a flag that is neither.
std::vector<std::string> with_key_flags(const CLI::App& command,
                                        std::vector<std::string> overrides);

}  // namespace trireme
