// The terminal shared by log lines, the step line and the progress bar. Thread-safe.
#pragma once

#include <string>

namespace trireme {

enum class Stream { kOut, kErr };
// Prints a line and flushes; a status line on the terminal is erased before and redrawn after.
void console_print(Stream stream, const std::string& line);
// The last line of the terminal; "" removes it. Nothing is drawn when stdout is not a terminal.
void console_set_status(const std::string& status);
bool console_is_terminal();  // stdout
int console_width();         // columns; 80 when unknown

// What the outputs of a process lead to.
struct ConsoleTarget {
  int columns = 0;      // of the terminal that stdout is; 0: it is none
  bool shared = false;  // stderr is the same terminal
};
ConsoleTarget console_target();  // of this process
// stdout and stderr lead to a launcher, which may give every rank a terminal of its own and write
// what comes out of it to a file. Only its own target counts: without a terminal nothing is drawn;
// where stderr shares it, all goes through stdout, because a launcher keeps no order between two
// streams.
void console_behind_launcher(const ConsoleTarget& target);
// From now on a line that a launcher has no room for is dropped: it ends its ranks, and reads
// nothing more from them.
void console_drop_unread();

}  // namespace trireme
