// Command line of the `trireme` binary. Each command, or group of related commands, has a header
// and a source file in this folder or a subfolder, with one function that adds it to the parser;
// run_command_line() calls all of them.
//
// The callback of a command throws an Error on failure, whose code becomes the exit code
// (engine/core/error.h). To exit with another code than 0 without an error message, it throws
// CLI::RuntimeError(exit code).
#pragma once

namespace trireme {

// Parses the command line, runs the command and returns the exit code of the process
// (docs/reference/exit-codes.md). Throws nothing: every exception becomes one message on standard
// error, "trireme: error: ...", unless it has been reported already (ReportedError).
int run_command_line(int argc, char** argv);

}  // namespace trireme
