// What a schema says, for editors and for people.
#pragma once

#include <string>

#include "engine/config/reader.h"
#include "engine/config/schema.h"

namespace trireme {

// JSON Schema, draft 2020-12: types, defaults, ranges, enumerations, descriptions; aliases too.
Json json_schema(const Schema& schema);
// Markdown tables of the keys that are read, one a section.
std::string markdown_tables(const Schema& schema);
// These, then what is accepted without effect, refused, not available.
std::string markdown_reference(const Schema& schema);

}  // namespace trireme
