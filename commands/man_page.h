// Command `trireme man`, which prints the manual page.
#pragma once

namespace CLI {
class App;
}

namespace trireme {

// Adds the command. When it runs it prints one page with all commands and options of `app`, in roff
// with the macros of man(7).
void add_man_command(CLI::App& app);

}  // namespace trireme
