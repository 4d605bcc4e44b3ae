// Values of enum and const beside other keywords: which of them satisfy those. For .cpp files only
// (it includes the JSON library).
#pragma once

#include <string>

#include "serving/structured/schema_keywords.h"

namespace trireme {

// Whether a value satisfies a schema, exactly. find: resolves references. InputError names path and
// keyword where that is not known.
bool satisfies(const Schema& value, const Schema& schema, const SchemaFinder& find,
               const std::string& path, CompileBudget& budget);

}  // namespace trireme
