// Command `trireme serve`, which serves a saved model over HTTP.
#pragma once

namespace CLI {
class App;
}

namespace trireme {

struct CommandLine;

CLI::App* add_serve_command(CLI::App& parent, const CommandLine& line);

}  // namespace trireme
