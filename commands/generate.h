// Command `trireme generate`, which generates text with a saved model.
#pragma once

namespace CLI {
class App;
}

namespace trireme {

struct CommandLine;

CLI::App* add_generate_command(CLI::App& parent, const CommandLine& line);

}  // namespace trireme
