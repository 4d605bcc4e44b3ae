// Git LFS pointer files: a clone without git-lfs holds a few lines of text in place of each large
// file.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace trireme {

// Throws InputError if a file that starts with `head` is such a pointer; the message says how to
// get the file. head: the whole file, or at least its first 32 bytes.
void refuse_lfs_pointer(std::string_view head, const std::string& path);
void refuse_lfs_pointer(std::span<const std::byte> head, const std::string& path);

}  // namespace trireme
