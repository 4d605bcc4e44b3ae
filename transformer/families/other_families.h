// Families of transformers that are not implemented, for messages about their models.
#pragma once

#include <string>

namespace trireme {

// Features of the family that llama does not have, to follow "it has"; nullptr: a family that is
// not in the table. A family that gets implemented loses its row.
const char* other_family_features(const std::string& model_type);

}  // namespace trireme
