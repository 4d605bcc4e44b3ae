// Table of model families of HuggingFace's transformers library that are refused by name.
#pragma once

#include <string>

namespace trireme {

// Returns the features that the family has and llama lacks, worded to follow "it has" in an error;
// nullptr if the family is not in the table. Remove a family's row when it is supported.
const char* other_family_features(const std::string& model_type);

}  // namespace trireme
