#include "tests/serving/structured/sweep/json_validator.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <regex>

namespace trireme::test {
namespace {

bool is_of(const Json& v, const std::string& type) {
  if (type == "integer") return v.is_number() && v.get<double>() == std::floor(v.get<double>());
  if (type == "number") return v.is_number();
  if (type == "null") return v.is_null();
  if (type == "boolean") return v.is_boolean();
  if (type == "string") return v.is_string();
  return type == "array" ? v.is_array() : v.is_object();
}

size_t characters(const std::string& text) {
  size_t count = 0;
  for (const char c : text) count += (static_cast<unsigned char>(c) & 0xC0) != 0x80 ? 1 : 0;
  return count;
}

// Converts to characters, which patterns match instead of bytes.
std::wstring wide(const std::string& text) {
  std::wstring out;
  for (size_t at = 0; at < text.size();) {
    const auto first = static_cast<unsigned char>(text[at]);
    const size_t bytes = first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
    auto c = static_cast<uint32_t>(bytes == 1 ? first : first & (0xFF >> (bytes + 1)));
    for (size_t i = 1; i < bytes; ++i)
      c = c << 6 | (static_cast<unsigned char>(text[at + i]) & 0x3F);
    out += static_cast<wchar_t>(c);
    at += bytes;
  }
  return out;
}

bool is_date(const std::string& text) {
  int y = 0, m = 0, d = 0, end = 0;
  if (text.size() != 10 || std::sscanf(text.c_str(), "%4d-%2d-%2d%n", &y, &m, &d, &end) != 3 ||
      end != 10)
    return false;
  const bool leap = (y % 4 == 0 && y % 100 != 0) || y % 400 == 0;
  const int days[] = {31, leap ? 29 : 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  return y >= 1 && m >= 1 && m <= 12 && d >= 1 && d <= days[m - 1];
}

bool has_format(const std::string& text, const std::string& format) {
  if (format == "date") return is_date(text);
  if (format == "date-time") {
    static const std::regex clock(
        "([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d+)?(Z|[+-]\\d\\d:\\d\\d)");
    return text.size() > 11 && is_date(text.substr(0, 10)) && text[10] == 'T' &&
           std::regex_match(text.substr(11), clock);
  }
  if (format == "uuid") {
    static const std::regex uuid("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}");
    return std::regex_match(text, uuid);
  }
  static const std::regex uri("https?://[A-Za-z0-9.-]+(:[0-9]{1,5})?(/[^ ?]*)?(\\?[^ ]*)?");
  if (format == "uri") return std::regex_match(text, uri);
  if (format == "binary") return true;  // an annotation
  static const std::regex email("[^@ ]+@[A-Za-z0-9-]+(\\.[A-Za-z0-9-]+)+");
  return format == "email" && std::regex_match(text, email);
}

std::string of_string(const std::string& v, const Json& s) {
  if (s.contains("minLength") && characters(v) < s["minLength"].get<size_t>()) return "minLength";
  if (s.contains("maxLength") && characters(v) > s["maxLength"].get<size_t>()) return "maxLength";
  if (s.contains("format") && !has_format(v, s["format"])) return "format";
  if (s.contains("pattern") &&
      !std::regex_search(wide(v), std::wregex(wide(s["pattern"].get<std::string>()))))
    return "pattern";
  return "";
}

std::string of_number(double v, const Json& s) {
  if (s.contains("minimum") && v < s["minimum"].get<double>()) return "minimum";
  if (s.contains("maximum") && v > s["maximum"].get<double>()) return "maximum";
  if (s.contains("exclusiveMinimum") && v <= s["exclusiveMinimum"].get<double>())
    return "exclusiveMinimum";
  if (s.contains("exclusiveMaximum") && v >= s["exclusiveMaximum"].get<double>())
    return "exclusiveMaximum";
  if (s.contains("multipleOf") && std::fmod(v, s["multipleOf"].get<double>()) != 0)
    return "multipleOf";
  return "";
}

std::string of_array(const Json& v, const Json& s, const Json& root) {
  if (s.contains("minItems") && v.size() < s["minItems"].get<size_t>()) return "minItems";
  if (s.contains("maxItems") && v.size() > s["maxItems"].get<size_t>()) return "maxItems";
  const size_t prefix = s.contains("prefixItems") ? s["prefixItems"].size() : 0;
  for (size_t i = 0; i < v.size(); ++i) {
    const Json of = i < prefix ? s["prefixItems"][i] : s.value("items", Json(true));
    if (std::string why = invalid_part(v[i], of, root); !why.empty())
      return std::to_string(i) + "/" + why;
  }
  if (s.value("uniqueItems", Json(false)) == true)
    for (size_t i = 0; i < v.size(); ++i)
      if (std::find(v.begin(), v.begin() + static_cast<int64_t>(i), v[i]) !=
          v.begin() + static_cast<int64_t>(i))
        return "uniqueItems";
  if (!s.contains("contains")) return "";
  const auto matches = std::count_if(v.begin(), v.end(), [&](const Json& one) {
    return invalid_part(one, s["contains"], root).empty();
  });
  const bool fits = matches >= s.value("minContains", 1) && matches <= s.value("maxContains", 9999);
  return fits ? "" : "contains";
}

std::string of_object(const Json& v, const Json& s, const Json& root) {
  if (s.contains("required"))
    for (const Json& name : s["required"])
      if (!v.contains(name.get<std::string>())) return "required " + name.dump();
  const auto count = static_cast<int64_t>(v.size());
  if (count < s.value("minProperties", 0)) return "minProperties";
  if (count > s.value("maxProperties", 9999)) return "maxProperties";
  for (const auto& [name, member] : v.items()) {
    if (s.contains("propertyNames") && !invalid_part(name, s["propertyNames"], root).empty())
      return "propertyNames";
    for (const Json& other :
         s.value("dependentRequired", Json::object()).value(name, Json::array()))
      if (!v.contains(other.get<std::string>())) return "dependentRequired";
  }
  const Json properties = s.value("properties", Json::object()),
             patterns = s.value("patternProperties", Json::object());
  for (const auto& [name, member] : v.items()) {
    Json all = Json::array();
    if (properties.contains(name)) all.push_back(properties[name]);
    for (const auto& [pattern, of] : patterns.items())
      if (std::regex_search(wide(name), std::wregex(wide(pattern)))) all.push_back(of);
    if (all.empty()) all.push_back(s.value("additionalProperties", Json(true)));
    for (const Json& of : all)
      if (std::string why = invalid_part(member, of, root); !why.empty()) return name + "/" + why;
  }
  return "";
}

}  // namespace

std::string invalid_part(const Json& v, const Json& s, const Json& root) {
  if (s.is_boolean()) return s == true ? "" : "false";
  if (s.contains("$ref")) {
    const auto to = s["$ref"].get<std::string>();
    const Json& schema = to == "#" ? root : root.at(Json::json_pointer(to.substr(1)));
    if (std::string why = invalid_part(v, schema, root); !why.empty()) return why;
  }
  if (s.contains("type")) {
    bool any = false;
    for (const Json& t : s["type"].is_array() ? s["type"] : Json::array({s["type"]}))
      any = any || is_of(v, t);
    if (!any) return "type";
  }
  if (s.contains("const") && v != s["const"]) return "const";
  if (s.contains("enum") && std::find(s["enum"].begin(), s["enum"].end(), v) == s["enum"].end())
    return "enum";
  for (const char* name : {"anyOf", "oneOf"}) {
    if (!s.contains(name)) continue;
    const auto hold = std::count_if(s[name].begin(), s[name].end(), [&](const Json& one) {
      return invalid_part(v, one, root).empty();
    });
    if (hold == 0 || (hold > 1 && name[0] == 'o')) return name;
  }
  if (s.contains("allOf"))
    for (const Json& one : s["allOf"])
      if (std::string why = invalid_part(v, one, root); !why.empty()) return "allOf/" + why;
  if (v.is_string()) return of_string(v, s);
  if (v.is_number()) return of_number(v, s);
  if (v.is_array()) return of_array(v, s, root);
  return v.is_object() ? of_object(v, s, root) : "";
}

}  // namespace trireme::test
