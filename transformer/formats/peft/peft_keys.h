// Keys of PEFT's adapter_config.json: every field of its LoraConfig, and what becomes of it here.
//
// A key is read, or it has no effect on what a trained adapter computes, or only its neutral values
// are accepted (null, false, what is empty, and those listed): any other value makes another model
// of the same tensors and is refused by name. So is a key that is not in the table: PEFT itself
// drops those, with a warning.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace trireme {

enum class PeftKeyUse { kRead, kNoEffect, kNeutralOnly };

struct PeftKey {
  const char* name;
  PeftKeyUse use;
  // As JSON, beside null, false and what is empty; of kNoEffect those that are not noted, "*": all.
  std::vector<const char*> neutral;
  const char* meaning;  // of kNeutralOnly what another value does, after "PEFT"
};

const std::vector<PeftKey>& peft_keys();

// InputError that names the key and its value, and the way out. "" or a note of the keys that say
// something of training or of Python, which has no effect.
std::string check_peft_keys(const std::string& file, const nlohmann::ordered_json& config);

// The table as Markdown (docs/reference/adapter-keys.md).
std::string adapter_reference();

}  // namespace trireme
