// Keys of PEFT's adapter_config.json: every field of its LoraConfig and its effect here.
//
//   kRead          the key is used
//   kNoEffect      the key has no effect on what a trained adapter computes
//   kNeutralOnly   only null, false, empty and listed values are accepted. Any other value makes a
//                  different model of the same tensors and is refused, with the key named
// Unknown keys are refused too, unless null, false or empty; PEFT drops them with a warning.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace trireme {

enum class PeftKeyUse { kRead, kNoEffect, kNeutralOnly };

struct PeftKey {
  const char* name;
  PeftKeyUse use;
  // Accepted values as JSON, besides null, false and empty ones. kNoEffect: values without a note;
  // "*": all.
  std::vector<const char*> neutral;
  const char* meaning;  // of the key; kNeutralOnly: effect of other values, after "PEFT"
};

const std::vector<PeftKey>& peft_keys();

// Checks a file's keys: InputError naming the key, its value, and the way out. Returns "" or a note
// about keys without effect, which concern training or Python.
std::string check_peft_keys(const std::string& file, const nlohmann::ordered_json& config);

// The table as Markdown (docs/reference/adapter-keys.md).
std::string adapter_reference();

}  // namespace trireme
