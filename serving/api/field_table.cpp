#include "serving/api/field_table.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "engine/io/strict_json.h"

namespace trireme {
namespace {

constexpr int64_t kExactIntegers = int64_t{1} << 53;  // larger doubles are rounded
constexpr double kTwoTo63 = 9223372036854775808.0;    // INT64_MAX as a double

const char* kind_words(FieldKind kind) {
  switch (kind) {
    case FieldKind::kBoolean: return "true or false";
    case FieldKind::kInteger: return "an integer";
    case FieldKind::kNumber: return "a number";
    case FieldKind::kString: return "a string";
    case FieldKind::kObject: return "an object";
    case FieldKind::kArray: return "an array";
    case FieldKind::kOther: return "";
  }
  return "";
}

[[noreturn]] void fail_kind(const Field& field, const ApiJson& value) {
  throw ApiError(
      400, concat(field.name, ": expected ", kind_words(field.kind), ", got ", type_words(value)),
      field.name, "invalid_type");
}

// Integral bounds are written as integers.
std::string bound_text(double bound) {
  if (bound == std::floor(bound) && std::abs(bound) < 1e18)
    return std::to_string(static_cast<int64_t>(bound));
  return text(bound);
}

void check_range(const Field& field, double value) {
  if (value < field.min) fail_field(field.name, field.name, " must be >= ", bound_text(field.min));
  if (value > field.max) fail_field(field.name, field.name, " must be <= ", bound_text(field.max));
}

void check_size(const Field& field, size_t size, const char* what) {
  if (size < field.min_size)
    fail_field(field.name, field.name, " has ", size, what, ", at least ", field.min_size,
               " are required");
  if (size > field.max_size)
    fail_field(field.name, field.name, " has ", size, what, ", at most ", field.max_size,
               " are allowed");
}

std::string digits_of(const ApiJson& long_integer) {
  const auto& digits = long_integer.get_binary();
  return {digits.begin(), digits.end()};
}

void append_json(const ApiJson& value, std::string& out) {
  const char* separator = "";
  if (value.is_object()) {
    out += '{';
    for (const auto& [name, member] : value.items()) {
      out.append(std::exchange(separator, ",")).append(ApiJson(name).dump()) += ':';
      append_json(member, out);
    }
    out += '}';
  } else if (value.is_array()) {
    out += '[';
    for (const ApiJson& element : value) {
      out += std::exchange(separator, ",");
      append_json(element, out);
    }
    out += ']';
  } else {
    out += is_long_integer(value) ? digits_of(value) : value.dump();
  }
}

}  // namespace

const char* type_words(const ApiJson& value) {
  if (value.is_null()) return "null";
  if (value.is_boolean()) return "a boolean";
  if (value.is_number_integer() || is_long_integer(value)) return "an integer";
  if (value.is_number()) return "a number";
  if (value.is_string()) return "a string";
  return value.is_array() ? "an array" : "an object";
}

void fail_type(const std::string& param, const char* wanted, const ApiJson& value) {
  throw ApiError(400, concat(param, ": expected ", wanted, ", got ", type_words(value)), param,
                 "invalid_type");
}

std::string read_text(const std::string& param, const ApiJson& value, size_t min_bytes,
                      size_t max_bytes) {
  if (!value.is_string()) fail_type(param, "a string", value);
  const auto& text = value.get_ref<const std::string&>();
  if (text.size() < min_bytes) fail_field(param, param, " must not be empty");
  if (text.size() > max_bytes)
    fail_field(param, param, " has ", text.size(), " bytes, at most ", max_bytes, " are allowed");
  return text;
}

void check_members(const std::string& param, const ApiJson& object,
                   std::initializer_list<std::string_view> known) {
  for (const auto& [name, value] : object.items()) {
    if (value.is_null() || std::ranges::find(known, std::string_view(name)) != known.end())
      continue;
    std::string all;
    for (const std::string_view one : known) all += concat(all.empty() ? "" : ", ", one);
    const std::string at = concat(param, ".", name.substr(0, 64));
    throw ApiError(400, concat(at, " is not supported; supported members of ", param, ": ", all),
                   at, "unknown_field");
  }
}

bool is_long_integer(const ApiJson& value) { return value.is_binary(); }

std::string json_text(const ApiJson& value) {
  std::string out;
  append_json(value, out);
  return out;
}

ApiJson parse_body(std::string_view body, int depth) {
  ApiJson json;
  try {
    json = parse_strict_json<ApiJson>(
        body, "the request's body",
        {.depth = depth, .keys_per_object = 4096, .long_integers = true});
  } catch (const InputError& error) {
    throw ApiError(400, error.what(), "", "invalid_json");
  }
  if (!json.is_object())
    throw ApiError(400, concat("the request's body: expected an object, got ", type_words(json)),
                   "", "invalid_type");
  for (auto& [name, value] : json.items())  // bounds of number fields fit doubles
    if (is_long_integer(value)) value = std::strtod(digits_of(value).c_str(), nullptr);
  return json;
}

bool read_boolean(const Field& field, const ApiJson& value) {
  if (!value.is_boolean()) fail_kind(field, value);
  return value.get<bool>();
}

int64_t read_integer(const Field& field, const ApiJson& value) {
  if (!value.is_number()) fail_kind(field, value);
  if (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX))
    fail_field(field.name, field.name, " must be <= ",
               field.max < kTwoTo63 ? bound_text(field.max) : std::to_string(INT64_MAX));
  if (value.is_number_float()) {
    const double number = value.get<double>();
    check_range(field, number);
    if (number != std::floor(number)) fail_kind(field, value);
    if (number >= kTwoTo63) fail_field(field.name, field.name, " must be <= ", INT64_MAX);
    if (number <= -kTwoTo63) fail_field(field.name, field.name, " must be >= ", INT64_MIN);
    if (std::abs(number) > static_cast<double>(kExactIntegers))
      fail_field(field.name, field.name, " cannot be read exactly: integers beyond ",
                 kExactIntegers, " must have neither a decimal point nor an exponent");
    return static_cast<int64_t>(number);
  }
  const auto number = value.get<int64_t>();
  check_range(field, static_cast<double>(number));
  return number;
}

double read_number(const Field& field, const ApiJson& value) {
  if (!value.is_number()) fail_kind(field, value);
  const auto number = value.get<double>();
  check_range(field, number);
  return number;
}

std::string read_string(const Field& field, const ApiJson& value) {
  check_value(field, value);
  return value.get<std::string>();
}

void check_value(const Field& field, const ApiJson& value) {
  switch (field.kind) {
    case FieldKind::kString: {
      if (!value.is_string()) fail_kind(field, value);
      const auto& text = value.get_ref<const std::string&>();
      check_size(field, text.size(), " bytes");
      if (field.words.empty()) return;
      std::string all;
      for (const std::string& word : field.words) {
        if (word == text) return;
        all += concat(all.empty() ? "" : ", ", "\"", word, "\"");
      }
      fail_field(field.name, field.name, ": expected one of ", all);
    }
    case FieldKind::kObject:
      if (!value.is_object()) fail_kind(field, value);
      return check_size(field, value.size(), " entries");
    case FieldKind::kArray:
      if (!value.is_array()) fail_kind(field, value);
      return check_size(field, value.size(), " entries");
    case FieldKind::kOther:
      if (value.is_array()) check_size(field, value.size(), " entries");
      return;
    default: return;
  }
}

bool is_trivial(const Field& field, const ApiJson& value) {
  return std::ranges::any_of(field.trivial,
                             [&](const std::string& one) { return ApiJson::parse(one) == value; });
}

void check_aliases(std::span<const Field> fields, const ApiJson& object) {
  const auto value_of = [&](const Field& field) -> const ApiJson* {
    const auto at = object.find(field.name);
    return at == object.end() || at->is_null() || is_trivial(field, *at) ? nullptr : &*at;
  };
  for (const Field& field : fields) {
    if (field.alias_of.empty()) continue;
    const ApiJson* const value = value_of(field);
    if (value == nullptr) continue;
    for (const Field& other : fields) {
      if (other.name != field.alias_of && other.alias_of != field.alias_of) continue;
      if (const ApiJson* const theirs = value_of(other); theirs != nullptr && *theirs != *value)
        fail_field(field.name, field.name, " and ", other.name,
                   " are names of the same field but have different values");
    }
  }
}

void check_unavailable(const Field& field, const ApiJson& value) {
  if (is_trivial(field, value)) return;
  if (field.status == FieldStatus::kRefused)
    throw ApiError(400, concat(field.name, " is not accepted: ", field.help), field.name,
                   "not_accepted");
  fail_unavailable(field.name, field.name, " is not available on this server: ", field.help);
}

}  // namespace trireme
