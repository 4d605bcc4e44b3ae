// The tables of fields, by endpoint (serving/api/requests.h has the parsers).
#pragma once

#include <vector>

#include "serving/api/field.h"

namespace trireme {

const std::vector<Field>& completion_fields();
const std::vector<Field>& chat_fields();
const std::vector<Field>& embeddings_fields();
const std::vector<Field>& tokenize_fields();
const std::vector<Field>& detokenize_fields();
const std::vector<Field>& weights_fields();
const std::vector<Field>& load_adapter_fields();
const std::vector<Field>& unload_adapter_fields();

}  // namespace trireme
