// Commands `trireme checkpoint export`, `merge-lora`, `import` and `convert`, which copy models
// between our format and third-party formats, and `diff`, which compares two models.
#pragma once

namespace CLI {
class App;
}

namespace trireme {

void add_checkpoint_copy_commands(CLI::App& checkpoint);

}  // namespace trireme
