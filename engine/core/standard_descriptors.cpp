#include "engine/core/standard_descriptors.h"

#include <fcntl.h>
#include <unistd.h>

namespace trireme {

void open_standard_descriptors() {
  // open() returns the lowest closed one; like the others, it stays open across execve().
  int opened = 0;
  while (opened >= 0 && opened <= 2) opened = ::open("/dev/null", O_RDONLY);  // NOLINT
  if (opened > 2) ::close(opened);
}

}  // namespace trireme
