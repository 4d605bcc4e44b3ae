// Keys of GGUF metadata under "<architecture>.": which are read, which say nothing, which are
// refused.
#pragma once

#include <string>

#include "engine/config/reader.h"
#include "engine/config/schema.h"
#include "engine/io/gguf.h"

namespace trireme {

// The keys of an architecture of kGgufArchitectures, from which the check and
// docs/reference/model-keys.md are made.
const Schema& gguf_schema(const std::string& architecture);
// InputError for keys of the file's architecture that are not known, are refused, or have values of
// another kind.
void check_gguf_keys(const GgufFile& file, const std::string& architecture);

}  // namespace trireme
