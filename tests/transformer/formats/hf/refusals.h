// Errors of opening a HuggingFace directory.
#pragma once

#include <gtest/gtest.h>

#include "engine/core/error.h"
#include "transformer/formats/hf/hf_model.h"

namespace trireme::test {

// Message of the InputError that f throws; "": none.
template <class F>
std::string refusal(F&& f) {
  try {
    f();
  } catch (const InputError& e) {
    return e.what();
  }
  return "";
}

inline std::string open_refusal(const std::string& directory) {
  return refusal([&] {
    const HfModel model(directory);
    model.check(model.config());
  });
}

inline void expect_says(const std::string& message, const std::vector<std::string>& parts) {
  for (const std::string& part : parts)
    EXPECT_NE(message.find(part), std::string::npos) << part << "\nis not in\n" << message;
}

}  // namespace trireme::test
