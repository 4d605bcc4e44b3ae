// JSON files of the tests.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "engine/io/atomic_file.h"
#include "engine/io/strict_json.h"

namespace trireme::test {

template <class JsonType>
JsonType read_json_file(const std::string& path) {
  return parse_strict_json<JsonType>(read_small_file(path), path);
}

}  // namespace trireme::test
