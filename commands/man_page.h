// trireme man
#pragma once

namespace CLI {
class App;
}

namespace trireme {

// Adds the command that prints the manual page of every command (roff, macros of man(7)) from the
// finished tree of `app`.
void add_man_command(CLI::App& app);

}  // namespace trireme
