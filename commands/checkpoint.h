// trireme checkpoint inspect | verify PATH
#pragma once

namespace CLI {
class App;
}

namespace trireme {

CLI::App* add_checkpoint_command(CLI::App& parent);

}  // namespace trireme
