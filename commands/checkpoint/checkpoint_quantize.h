// trireme checkpoint quantize: a model with the weights of its linear layers in fewer bits.
#pragma once

namespace CLI {
class App;
}

namespace trireme {

void add_checkpoint_quantize_command(CLI::App& checkpoint);

}  // namespace trireme
