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
// stdout leads to a launcher, which may give every rank a terminal of its own and write what comes out of
// it to a file: draw nothing.
void console_behind_launcher();
int console_width();  // columns; 80 when unknown

}  // namespace trireme
