// Files that git left out: a clone without git-lfs holds some lines of text in the place of each
// large file.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace trireme {

// Throws InputError where a file that begins with `head` is such a pointer, with how to get the
// file. `head`: the file or at least its first 32 bytes.
void refuse_lfs_pointer(std::string_view head, const std::string& path);
void refuse_lfs_pointer(std::span<const std::byte> head, const std::string& path);

}  // namespace trireme
