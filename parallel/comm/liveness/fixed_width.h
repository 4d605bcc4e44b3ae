// Decimal numbers of fixed width, for messages whose length must not depend on the values.
#pragma once

#include "engine/core/error.h"

namespace trireme {

// Pads with zeros: process ids and times differ from run to run, but the bytes sent must not.
inline std::string fixed_width(int64_t number, size_t digits) {
  std::string written = text(number);
  if (written.size() < digits) written.insert(0, digits - written.size(), '0');
  return written;
}

}  // namespace trireme
