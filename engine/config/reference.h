// Reference of a schema: JSON Schema for editors, Markdown for people.
#pragma once

#include <string>

#include "engine/config/reader.h"
#include "engine/config/schema.h"

namespace trireme {

// JSON Schema, draft 2020-12: types, defaults, ranges, enumerations and descriptions, also of
// aliases.
Json json_schema(const Schema& schema);
// Markdown tables of the implemented keys, one per section.
std::string markdown_tables(const Schema& schema);
// The tables, then the keys accepted without effect, refused and not available.
std::string markdown_reference(const Schema& schema);

}  // namespace trireme
