// Guard of file mappings against files that become shorter while they are mapped.
//
// An access behind the new end of such a file raises SIGBUS, which would end the process, a
// server's too. The guard lets the access read zeros, and check_mapping() then refuses what has
// been read. Readers of mapped bytes call it after they have read, before they use it.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace trireme {

// Takes over the mapping's descriptor. Any thread.
void guard_mapping(std::span<const std::byte> mapping, int descriptor, const std::string& path);
// Before it is unmapped.
void release_mapping(std::span<const std::byte> mapping) noexcept;

// InputError where the file of a guarded mapping, of which `part` is a part, has been cut short
// since it was mapped.
void check_mapping(std::span<const std::byte> part);

}  // namespace trireme
