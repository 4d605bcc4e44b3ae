// Values of data.*_data_path: blends of token files, and named validation sets.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "engine/config/reader.h"
#include "training/config/run_config.h"

namespace trireme {

// Reads a blend: null, "prefix", ["prefix"], [0.3, "a", 0.7, "b"], or Megatron's "0.3 a 0.7 b". A
// prefix may end in .bin or .idx, which is removed. Weights are above 0 and need not sum to one.
// Reports problems under the key `path`.
std::vector<BlendPart> read_data_path(const Json& value, const std::string& path,
                                      ConfigReport& report);
Json data_path_to_json(const std::vector<BlendPart>& parts);  // null if empty

// Reads validation sets: a blend is one set without a name; {"wiki": blend, "code": blend} are
// named sets, in this order. A name is part of TensorBoard tags and console lines: at most 64
// letters, digits, '_', '-' and '.'. The name "test" is reserved for data.test_data_path.
std::vector<ValidationSet> read_validation_sets(const Json& value, const std::string& path,
                                                ConfigReport& report);
Json validation_sets_to_json(const std::vector<ValidationSet>& sets);  // null if empty

// Parses data.split into the weights of training, validation and test: "969,30,1", up to three
// numbers >= 0, not all 0, with or without spaces; missing ones are 0. Returns "" or the problem.
std::string read_split(const std::string& split, std::array<double, 3>& weights);

}  // namespace trireme
