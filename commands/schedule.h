// Command `trireme schedule show`, which draws a pipeline schedule.
#pragma once

namespace CLI {
class App;
}

namespace trireme {

CLI::App* add_schedule_command(CLI::App& parent);

}  // namespace trireme
