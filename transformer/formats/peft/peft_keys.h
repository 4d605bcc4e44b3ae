// Keys of PEFT's adapter_config.json: every field of its LoraConfig and its effect here.
//
// A key is read; or it has no effect on what a trained adapter computes; or only its neutral values
// are accepted (null, false, empty values, and those listed). Any other value of the last kind
// makes a different model of the same tensors and is refused, with the key named. Unknown keys are
// refused too; PEFT itself drops them with a warning.
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
  const char* meaning;  // kNeutralOnly: effect of other values, after "PEFT"
};

const std::vector<PeftKey>& peft_keys();

// InputError naming the key, its value, and the way out. Returns "" or a note about keys without
// effect, which concern training or Python.
std::string check_peft_keys(const std::string& file, const nlohmann::ordered_json& config);

// The table as Markdown (docs/reference/adapter-keys.md).
std::string adapter_reference();

}  // namespace trireme
