// trireme logits MODEL --tokens FILE --output FILE: a model's logits for given ids, for other
// programs.
#pragma once

namespace CLI {
class App;
}

namespace trireme {

struct CommandLine;
CLI::App* add_logits_command(CLI::App& app, const CommandLine& line);

}  // namespace trireme
