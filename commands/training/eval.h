// Command `trireme eval`, which evaluates a saved model.
#pragma once

namespace CLI {
class App;
}

namespace trireme {

struct CommandLine;

CLI::App* add_eval_command(CLI::App& parent, const CommandLine& line);

}  // namespace trireme
