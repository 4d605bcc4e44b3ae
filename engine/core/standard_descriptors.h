// Standard descriptors 0, 1 and 2 of a process that was started with some of them closed.
#pragma once

namespace trireme {

// Call first in main(). Opens /dev/null, read-only, for each of the three that is closed: a file
// opened later, such as a checkpoint or a socket, never becomes the standard output, and writing
// there fails as before (EBADF).
void open_standard_descriptors();

}  // namespace trireme
