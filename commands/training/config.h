// trireme config resolve | schema | reference
#pragma once

namespace CLI {
class App;
}

namespace trireme {

CLI::App* add_config_command(CLI::App& parent);

}  // namespace trireme
