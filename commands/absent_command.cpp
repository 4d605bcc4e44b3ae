#include "commands/absent_command.h"

#include <CLI/CLI.hpp>

#include "engine/core/error.h"

namespace trireme {

CLI::App* add_absent_command(CLI::App& parent, const std::string& name, const AbsentPart& part) {
  CLI::App* command = parent.add_subcommand(
      name, concat("Not available: this program was built without ", part.name));
  command->allow_extras();
  command->callback([name, part] {
    fail_input("this program was built without ", part.name, " (-D", part.option,
               "=OFF), so it has no ", name, "; build it again with -D", part.option, "=ON");
  });
  return command;
}

}  // namespace trireme
