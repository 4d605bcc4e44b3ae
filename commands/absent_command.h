// Placeholder commands, for a part that this build does not include.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace trireme {

// Part that the build does not include: its name in messages ("the server"), and the CMake option
// that includes it ("TRIREME_SERVING").
struct AbsentPart {
  std::string name, option;
};

// Adds a command that accepts any arguments and, when it runs, throws an InputError that names the
// part and the option.
CLI::App* add_absent_command(CLI::App& parent, const std::string& name, const AbsentPart& part);

}  // namespace trireme
