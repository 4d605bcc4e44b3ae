// Configuration keys as flags: commands that read a run configuration accept every key as a flag,
// such as --train-steps 10 or --optimizer-params-lr=1e-3.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace trireme {

// Makes the command accept unknown flags, for with_key_flags() to read.
void accept_key_flags(CLI::App& command);
// Returns `overrides` (of --set), followed by the key flags of the command line as overrides. If a
// flag is neither an option nor a key, InputError names the most similar one.
std::vector<std::string> with_key_flags(const CLI::App& command,
                                        std::vector<std::string> overrides);

}  // namespace trireme
