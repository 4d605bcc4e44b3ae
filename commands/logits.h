// Command `trireme logits`, which writes a model's logits for given token ids to a file, for
// comparison with other programs.
#pragma once

namespace CLI {
class App;
}

namespace trireme {

struct CommandLine;
CLI::App* add_logits_command(CLI::App& app, const CommandLine& line);

}  // namespace trireme
