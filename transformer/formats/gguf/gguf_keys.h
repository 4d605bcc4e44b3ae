// Keys of GGUF metadata under "<architecture>.": those that are read, ignored or refused.
#pragma once

#include <string>

#include "engine/config/reader.h"
#include "engine/config/schema.h"
#include "engine/io/gguf.h"

namespace trireme {

// Returns the keys of an architecture in kGgufArchitectures: source of the check and of
// docs/reference/model-keys.md.
const Schema& gguf_schema(const std::string& architecture);
// InputError for keys of the file's architecture that are unknown, refused, missing, or have a
// value of another type.
void check_gguf_keys(const GgufFile& file, const std::string& architecture);

}  // namespace trireme
