// Command `trireme config`, which checks configurations (resolve) and prints the JSON Schema and
// the reference pages.
#pragma once

namespace CLI {
class App;
}

namespace trireme {

CLI::App* add_config_command(CLI::App& parent);

}  // namespace trireme
