// The subcommands of the `trireme` binary; each lives in a file of its own in this folder.
#pragma once

namespace trireme {

// Parses the command line, runs the subcommand and returns the process's exit code
// (engine/core/error.h, docs/exit-codes.md). Nothing escapes: every exception becomes one line.
int run_command_line(int argc, char** argv);

}  // namespace trireme
