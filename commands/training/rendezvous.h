// Command `trireme rendezvous`, which adds the updates of sites that are jobs of their own.
#pragma once

namespace CLI {
class App;
}

namespace trireme {

CLI::App* add_rendezvous_command(CLI::App& parent);

}  // namespace trireme
