// Command `trireme route`, a load balancer for several servers.
#pragma once

namespace CLI {
class App;
}

namespace trireme {

CLI::App* add_route_command(CLI::App& app);

}  // namespace trireme
