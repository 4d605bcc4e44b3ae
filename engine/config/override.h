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
      value;  // JSON; a plain string if it is not JSON, or a number or boolean for a string key
};

// Splits "a.b=v" at the first '='. Throws InputError if there is none, or no path before it.
Override parse_override(const std::string& assignment);
// Sets the value at its path and removes values of the same key under its other names. A malformed
// path, or one through a value that is not an object, is an error in the report; an unknown path is
// left for read_config() to report.
void apply_override(const Schema& schema, const Override& change, Json& document,
                    ConfigReport& report);
// Removes the value at a path, if there is one.
void erase_path(Json& document, const std::string& path);
// Converts flags to overrides: "--train-steps 10", "--optimizer-params-lr=1e-3" ->
// "train_steps=10", "optimizer.params.lr=1e-3". Every key and alias is a flag, with '-' for '.' and
// '_'; a boolean needs no value. Throws InputError on an unknown flag or a missing value. options:
// further flags of the command (without "--") that the error may suggest.
std::vector<std::string> overrides_from_flags(const Schema& schema,
                                              const std::vector<std::string>& arguments,
                                              const std::vector<std::string>& options = {});

}  // namespace trireme
