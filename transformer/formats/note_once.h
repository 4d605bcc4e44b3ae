// Notes about files, each logged once per process.
#pragma once

#include <string>

namespace trireme {

// Logs `line`, which must begin with `file`, unless it was logged before for the same file. One
// directory may be opened several times: as base, as source of defaults and tokenizer, and under
// several names. Any thread.
void note_once(const std::string& file, const std::string& line);

}  // namespace trireme
