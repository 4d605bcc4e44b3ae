// Secret of a job that a user has chosen, and the file in which it is kept.
#pragma once

#include <cstddef>
#include <string>

namespace trireme {

inline constexpr size_t kMinSecret = 16, kMaxSecret = 4096;  // characters

// InputError if the secret has another size. from: its variable or file.
void check_secret_size(const std::string& secret, const std::string& from);

// Secret in the first line of a file. InputError if the file cannot be read or is not a regular
// file, or if the secret has another size; a warning if users other than the owner may read it.
std::string read_secret_file(const std::string& path);

}  // namespace trireme
