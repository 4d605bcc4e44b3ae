// Command `trireme completion`, which prints a completion script for bash, zsh or fish.
#pragma once

namespace CLI {
class App;
}

namespace trireme {

// Adds the command. When it runs it reads all commands and options of `app`, including those added
// later.
void add_completion_command(CLI::App& app);

}  // namespace trireme
