// Commands `trireme tokenize` and `trireme detokenize`, which convert text to token ids and back.
#pragma once

namespace CLI {
class App;
}

namespace trireme {

void add_tokenize_commands(CLI::App& parent);

}  // namespace trireme
