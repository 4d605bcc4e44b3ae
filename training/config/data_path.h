// Blend of token files, as written in configurations.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "engine/config/reader.h"
#include "training/config/run_config.h"

namespace trireme {

// null, "prefix", ["prefix"], [0.3, "a", 0.7, "b"], or Megatron's "0.3 a 0.7 b". A prefix may be
// the name of its .bin or .idx file. Weights need not sum to one. Adds problems to `report` under
// `path`.
std::vector<BlendPart> read_data_path(const Json& value, const std::string& path,
                                      ConfigReport& report);
Json data_path_to_json(const std::vector<BlendPart>& parts);  // null if empty

// One value as above: a single set without a name. {"wiki": value, "code": ...}: named sets, in
// this order. A name becomes part of a TensorBoard tag and of a console line: at most 64 letters,
// digits, '_', '-' and '.', and not "test", which labels lines about data.test_data_path.
std::vector<ValidationSet> read_validation_sets(const Json& value, const std::string& path,
                                                ConfigReport& report);
Json validation_sets_to_json(const std::vector<ValidationSet>& sets);  // null if empty

// Three numbers >= 0, not all 0: "969,30,1", with or without spaces; missing ones are 0. Returns ""
// or the problem.
std::string read_split(const std::string& split, std::array<double, 3>& weights);

}  // namespace trireme
