// Terminal output shared by log lines, the step line and the progress bar. Thread-safe.
#pragma once

#include <string>

namespace trireme {

enum class Stream { kOut, kErr };
// Prints a line and flushes; a status line on the terminal is erased before and redrawn after.
void console_print(Stream stream, const std::string& line);
// Sets the last line of the terminal; "" removes it. Nothing is drawn if stdout is not a terminal.
void console_set_status(const std::string& status);
bool console_is_terminal();  // stdout
int console_width();         // columns; 80 when unknown

// Targets of a process's outputs.
struct ConsoleTarget {
  int columns = 0;      // of stdout's terminal; 0: stdout is not one
  bool shared = false;  // stderr is the same terminal
};
ConsoleTarget console_target();  // of this process
// Draws for `target`, the outputs of the launcher, instead of for this process's own outputs: a
// launcher may give every rank a terminal and write what the rank prints to a file. Without a
// terminal nothing is drawn; if stderr shares it, all output uses stdout, because a launcher keeps
// no order between two streams.
void console_behind_launcher(const ConsoleTarget& target);
// From now on lines that the launcher does not read are dropped: it is ending its ranks, and reads
// no more of their output.
void console_drop_unread();

}  // namespace trireme
