// trireme completion bash | zsh | fish
#pragma once

namespace CLI {
class App;
}

namespace trireme {

// Adds the command that prints a completion script. It walks the finished tree of `app` and so
// covers every command.
void add_completion_command(CLI::App& app);

}  // namespace trireme
