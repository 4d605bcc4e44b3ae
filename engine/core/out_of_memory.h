// Failed allocation of host or device memory. Only the work that needed it has failed; work that
// needs less may continue.
#pragma once

#include "engine/core/error.h"

namespace trireme {

class OutOfMemory : public Error {
 public:
  using Error::Error;
};

}  // namespace trireme
