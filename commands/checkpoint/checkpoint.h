// trireme checkpoint inspect | verify PATH, and the commands of
// commands/checkpoint/checkpoint_copy.h
#pragma once

namespace CLI {
class App;
}

namespace trireme {

CLI::App* add_checkpoint_command(CLI::App& parent);

}  // namespace trireme
