// trireme checkpoint inspect | verify PATH, and what commands/checkpoint/checkpoint_copy.h adds
#pragma once

namespace CLI {
class App;
}

namespace trireme {

CLI::App* add_checkpoint_command(CLI::App& parent);

}  // namespace trireme
