#include "engine/core/standard_descriptors.h"

#include <fcntl.h>
#include <unistd.h>

namespace trireme {

void open_standard_descriptors() {
  // The lowest closed one is given each time; not closed by execve(), as little as the others.
  int opened = 0;
  while (opened >= 0 && opened <= 2) opened = ::open("/dev/null", O_RDONLY);  // NOLINT
  if (opened > 2) ::close(opened);
}

}  // namespace trireme
