// Table of transformers' families that are not implemented, for error messages.
#pragma once

#include <string>

namespace trireme {

// Returns the family's features that llama does not have, as an object of "it has", or nullptr if
// the family is not in the table. Remove a family's row when it is implemented.
const char* other_family_features(const std::string& model_type);

}  // namespace trireme
