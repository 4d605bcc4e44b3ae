// Terminal output shared by log lines, the step line and the progress bar. Thread-safe.
#pragma once

#include <string>

namespace trireme {

enum class Stream { kOut, kErr };
// Prints a line and flushes; erases the status line before and redraws it after.
void console_print(Stream stream, const std::string& line);
// Sets the status line, the terminal's last line; "" removes it. No effect if stdout is not a
// terminal.
void console_set_status(const std::string& status);
bool console_is_terminal();  // stdout
int console_width();         // columns; 80 when unknown

// Terminal that a process's stdout and stderr are connected to.
struct ConsoleTarget {
  int columns = 0;      // of stdout's terminal; 0: stdout is not one
  bool shared = false;  // stderr is the same terminal
};
ConsoleTarget console_target();  // of this process
// Makes these functions draw for `target`, the launcher's terminal, instead of this process's: a
// launcher may give every rank a terminal and write the rank's output to a file. If target has no
// terminal, nothing is drawn; if stderr shares it, all output uses stdout, because a launcher does
// not keep the order between two streams. Call before several threads print.
void console_use_launcher_terminal(const ConsoleTarget& target);
// With a launcher: makes console_print() drop lines that the launcher does not read within 50 ms,
// because it is ending its ranks.
void console_drop_unread();

}  // namespace trireme
