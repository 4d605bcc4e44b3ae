// trireme report RUN... [--output FILE]
#pragma once

namespace CLI {
class App;
}

namespace trireme {

CLI::App* add_report_command(CLI::App& parent);

}  // namespace trireme
