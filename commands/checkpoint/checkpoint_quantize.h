// Command `trireme checkpoint quantize`, which writes a model with quantized linear weights.
#pragma once

namespace CLI {
class App;
}

namespace trireme {

void add_checkpoint_quantize_command(CLI::App& checkpoint);

}  // namespace trireme
