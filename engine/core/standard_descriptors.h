// Descriptors 0, 1 and 2 of a process that was started without some of them.
#pragma once

namespace trireme {

// Call first thing in a program. Each of the three that is closed gets /dev/null, for reading: what
// is opened later, a checkpoint, a socket, never becomes the standard output; writing there fails
// as it did before (EBADF).
void open_standard_descriptors();

}  // namespace trireme
