// The subcommands of the `trireme` binary. Each lives in a file of its own in this folder and has one
// function here that adds it to the command line; run_command_line() calls them all.
//
// A command's callback throws on failure (engine/core/error.h: the code becomes the exit code). One
// that ends otherwise than with 0 and without an error throws CLI::RuntimeError(exit code).
#pragma once

namespace CLI {
class App;
}

namespace trireme {

// Parses the command line, runs the subcommand and returns the process's exit code
// (engine/core/error.h, docs/exit-codes.md). Nothing escapes: every exception becomes one line on
// standard error, "trireme: error: ...".
int run_command_line(int argc, char** argv);

// What a command needs to start itself again on several ranks (parallel/launch.h).
struct CommandLine {
  int argc = 0;
  char** argv = nullptr;
};

// Prints a completion script; it walks the finished tree of `app`, so it knows every command.
void add_completion_command(CLI::App& app);

}  // namespace trireme
