// trireme serve
#pragma once

namespace CLI {
class App;
}

namespace trireme {

CLI::App* add_serve_command(CLI::App& parent);

}  // namespace trireme
