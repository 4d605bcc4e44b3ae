// Standard file descriptors 0, 1 and 2 of a process that was started with some of them closed.
#pragma once

namespace trireme {

// Opens /dev/null, read-only, in place of each of the three that is closed, so that a checkpoint or
// socket opened later does not become the standard output. Writing to a descriptor opened here
// fails with EBADF, as if it were closed. Call first in main().
void open_standard_descriptors();

}  // namespace trireme
