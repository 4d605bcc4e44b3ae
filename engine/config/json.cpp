#include "engine/config/json.h"

#include <nlohmann/json.hpp>

namespace trireme {

std::string shown(const Json& value) {
  constexpr size_t kLongest = 60;
  std::string dump = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (dump.size() > kLongest) dump = dump.substr(0, kLongest - 3) + "...";
  return dump;
}

Json& value_at(Json& document, const std::string& path) {
  Json* at = &document;
  for (size_t begin = 0, dot = 0; dot != std::string::npos; begin = dot + 1) {
    dot = path.find('.', begin);
    at = &(*at)[path.substr(begin, dot - begin)];
  }
  return *at;
}

}  // namespace trireme
