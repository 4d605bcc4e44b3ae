// Message of the error that an action throws.
#pragma once

#include <functional>
#include <string>

#include "engine/core/error.h"

namespace trireme::test {

inline std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const InputError& error) {
    return error.what();
  }
  return "(no error)";
}

}  // namespace trireme::test
