// Command `trireme report`, which draws loss and throughput of runs.
#pragma once

namespace CLI {
class App;
}

namespace trireme {

CLI::App* add_report_command(CLI::App& parent);

}  // namespace trireme
