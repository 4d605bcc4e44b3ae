// A line of the log about a file, once a process.
#pragma once

#include <string>

namespace trireme {

// `line` begins with the name of the file. A directory is opened several times where it is base,
// source of defaults and tokenizer at once, and by several names. Any thread.
void note_once(const std::string& file, const std::string& line);

}  // namespace trireme
