// Guard of file mappings against files that are truncated while mapped.
//
// Access past the new end of such a file raises SIGBUS, which would end the process, even a server.
// With the guard the access reads zeros, and check_mapping() then rejects the data. Readers of
// mapped bytes call it after reading and before using the data.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace trireme {

// Starts guarding a mapping, and takes ownership of its descriptor. Thread-safe, like the functions
// below.
void guard_mapping(std::span<const std::byte> mapping, int descriptor, const std::string& path);
// Stops guarding a mapping and closes its descriptor. Call before unmapping.
void release_mapping(std::span<const std::byte> mapping) noexcept;

// Throws InputError if the file of the guarded mapping that contains `part` has been truncated
// since it was mapped. No effect if `part` is empty or in no guarded mapping.
void check_mapping(std::span<const std::byte> part);

}  // namespace trireme
