// Note about a file, logged once per process.
#pragma once

#include <string>

namespace trireme {

// `line` begins with the file name. Needed because one directory may be opened several times: as
// base, source of defaults and tokenizer, and under several names. Any thread.
void note_once(const std::string& file, const std::string& line);

}  // namespace trireme
