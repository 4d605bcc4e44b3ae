// Command line of the `trireme` binary. Each subcommand has a header and a .cpp in this folder,
// with one function that adds it to the tree; run_command_line() calls them all.
//
// A command's callback throws on failure (engine/core/error.h: the code becomes the exit code). A
// command that ends with another code than 0 but without an error throws CLI::RuntimeError(exit
// code).
#pragma once

namespace trireme {

// Parses the command line, runs the subcommand and returns the process's exit code
// (engine/core/error.h, docs/reference/exit-codes.md). No exception escapes: each becomes one line
// on standard error, "trireme: error: ...".
int run_command_line(int argc, char** argv);

}  // namespace trireme
