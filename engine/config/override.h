// Command-line overrides of a configuration document.
#pragma once

#include <string>
#include <vector>

#include "engine/config/reader.h"
#include "engine/config/schema.h"

namespace trireme {

struct Override {
  std::string path;  // "optimizer.params.lr"
  std::string
      value;  // JSON text; any other text, and any text for a key of type string, is a string
};

// Splits "a.b=v" at the first '='. Throws InputError.
Override parse_override(const std::string& assignment);
// Sets the value at its path, and removes what the document has for the same key under other names.
// An unknown path is left for read_config() to report.
void apply_override(const Schema& schema, const Override& change, Json& document,
                    ConfigReport& report);
// Removes the value at a path, if there is one.
void erase_path(Json& document, const std::string& path);
// "--train-steps 10", "--optimizer-params-lr=1e-3" -> "train_steps=10", ...: every key and alias is
// also a flag, with '-' for '.' and '_'; a boolean needs no value. Throws InputError on an unknown
// flag; options: further flags of the command (without "--") that the error may suggest.
std::vector<std::string> overrides_from_flags(const Schema& schema,
                                              const std::vector<std::string>& arguments,
                                              const std::vector<std::string>& options = {});

}  // namespace trireme
