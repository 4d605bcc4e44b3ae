// A blend of token files as configurations write it.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "engine/config/reader.h"
#include "training/config/run_config.h"

namespace trireme {

// null, "prefix", ["prefix"], [0.3, "a", 0.7, "b"], or Megatron's "0.3 a 0.7 b". A prefix may be
// given as the name of its .bin or .idx file. Weights need not sum to one. Problems are added to
// `report` under `path`.
std::vector<BlendPart> read_data_path(const Json& value, const std::string& path,
                                      ConfigReport& report);
Json data_path_to_json(const std::vector<BlendPart>& parts);  // null when empty

// One of the above: one set without a name. {"wiki": one of the above, "code": ...}: sets with
// names, in this order. A name becomes part of a TensorBoard tag and of a line on the console:
// letters, digits, '_', '-' and '.', 64 at most, "test" excepted, which is what lines about
// data.test_data_path say.
std::vector<ValidationSet> read_validation_sets(const Json& value, const std::string& path,
                                                ConfigReport& report);
Json validation_sets_to_json(const std::vector<ValidationSet>& sets);  // null when empty

// Three numbers at least 0, not all 0: "969,30,1", with or without spaces; missing ones are 0.
// Returns "" or the problem.
std::string read_split(const std::string& split, std::array<double, 3>& weights);

}  // namespace trireme
