// trireme completion bash | zsh | fish
#pragma once

namespace CLI {
class App;
}

namespace trireme {

// Prints a completion script; it walks the finished tree of `app`, so it knows every command.
void add_completion_command(CLI::App& app);

}  // namespace trireme
