#include "engine/config/json.h"

#include <nlohmann/json.hpp>

namespace trireme {

std::string shown(const Json& value) {
  constexpr size_t kLongest = 60;
  std::string dump = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (dump.size() > kLongest) dump = dump.substr(0, kLongest - 3) + "...";
  return dump;
}

}  // namespace trireme
