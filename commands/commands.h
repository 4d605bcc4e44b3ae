// The command line of the `trireme` binary. Each subcommand lives in a header and a .cpp of its own
// in this folder and has one function that adds it to the tree; run_command_line() calls them all.
//
// A command's callback throws on failure (engine/core/error.h: the code becomes the exit code). One
// that ends otherwise than with 0 and without an error throws CLI::RuntimeError(exit code).
#pragma once

namespace trireme {

// Parses the command line, runs the subcommand and returns the process's exit code
// (engine/core/error.h, docs/reference/exit-codes.md). Nothing escapes: every exception becomes one
// line on standard error, "trireme: error: ...".
int run_command_line(int argc, char** argv);

}  // namespace trireme
