// Command-line overrides of a configuration document.
#pragma once

#include <string>
#include <vector>

#include "engine/config/reader.h"
#include "engine/config/schema.h"

namespace trireme {

struct Override {
  std::string path;  // "optimizer.params.lr"
  // JSON text. Text that is not JSON is a string without quotes; so is a number or a boolean if the
  // key is a string ("2024" as a folder).
  std::string value;
};

// Splits "a.b=v" at the first '='. Throws InputError if there is none, or no path before it.
Override parse_override(const std::string& assignment);
// Sets the value at its path, creating objects on the way, and removes values of the same key under
// its other names. Two errors are added to the report: a path with an empty name or more than
// kMaxConfigDepth (parse.h) names, and a path through a value that is not an object. An unknown
// path is left for read_config() to report.
void apply_override(const Schema& schema, const Override& change, Json& document,
                    ConfigReport& report);
// Removes the value at a path, if there is one.
void erase_path(Json& document, const std::string& path);
// Converts flags to assignments for parse_override(): "--train-steps 10",
// "--optimizer-params-lr=1e-3" -> "train_steps=10", "optimizer.params.lr=1e-3". Every key and alias
// is a flag, with '-' for '.' and '_'. A boolean without a value is set to true. Throws InputError
// on an unknown flag, a missing value, or an argument that is neither a flag nor the value of one.
// options: further flags of the command (without "--") that the error may suggest.
std::vector<std::string> overrides_from_flags(const Schema& schema,
                                              const std::vector<std::string>& arguments,
                                              const std::vector<std::string>& options = {});

}  // namespace trireme
