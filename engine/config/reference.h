// Reference of a schema: JSON Schema for editors, Markdown for people.
#pragma once

#include <string>

#include "engine/config/reader.h"
#include "engine/config/schema.h"

namespace trireme {

// JSON Schema, draft 2020-12: types, defaults, ranges, enumerations and descriptions. An alias has
// all of these but the default; a key of a status other than kImplemented has only a description.
Json json_schema(const Schema& schema);
// Markdown tables of the implemented keys: one of the keys outside sections, then one per top-level
// section, which includes its nested sections.
std::string markdown_tables(const Schema& schema);
// The tables, then the keys accepted without effect, refused and not available.
std::string markdown_reference(const Schema& schema);

}  // namespace trireme
