// Memory of the host or of a device that cannot be had. What needed it has failed; what needs less
// may go on.
#pragma once

#include "engine/core/error.h"

namespace trireme {

class OutOfMemory : public Error {
 public:
  using Error::Error;
};

}  // namespace trireme
