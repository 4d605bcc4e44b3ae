// Commands `trireme pretrain` and `trireme finetune`.
#pragma once

namespace CLI {
class App;
}

namespace trireme {

struct CommandLine;

void add_training_commands(CLI::App& parent, const CommandLine& line);

}  // namespace trireme
