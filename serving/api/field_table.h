// Parser of requests, driven by tables of fields. For .cpp files only (includes the JSON library).
#pragma once

#include <functional>
#include <initializer_list>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "serving/api/api_error.h"
#include "serving/api/field.h"
#include "serving/api/peer_fields.h"

namespace trireme {

using ApiJson = nlohmann::ordered_json;

// Parses a body as a JSON object; throws ApiError 400 for anything else, and for arrays and objects
// nested more than `depth` deep. An integer of more than 64 bits becomes a double if it is the
// value of a member of this object. If it is nested deeper, it keeps its digits
// (JsonLimits::long_integers, engine/io/strict_json.h).
ApiJson parse_body(std::string_view body, int depth);
bool is_long_integer(const ApiJson& value);  // an integer that has kept its digits
// Compact JSON; long integers keep their digits.
std::string json_text(const ApiJson& value);

// These check a value against its row, and throw ApiError 400 that names the field. read_*() return
// the value.
bool read_boolean(const Field& field, const ApiJson& value);
int64_t read_integer(const Field& field, const ApiJson& value);
double read_number(const Field& field, const ApiJson& value);
std::string read_string(const Field& field, const ApiJson& value);
// Checks the kind and size of a kString, kObject or kArray, and the allowed values of a kString.
// For kOther it checks the size of an array. The fields' readers check the rest.
void check_value(const Field& field, const ApiJson& value);
// Throws ApiError 501 (kUnavailable) or 400 (kRefused) unless the value is trivial.
void check_unavailable(const Field& field, const ApiJson& value);
// True if field.trivial has the value. Numbers are compared by value: 1 and 1.0 are equal.
bool is_trivial(const Field& field, const ApiJson& value);
// Throws ApiError 400 if two names of one field have different values, neither null nor trivial.
void check_aliases(std::span<const Field> fields, const ApiJson& object);
// Name of a JSON value's type, with its article: "an object".
const char* type_words(const ApiJson& value);

// Checks of values inside a field. param: path of the value, such as "response_format.type".

// Throws ApiError 400: the value is not `wanted` ("a string").
[[noreturn]] void fail_type(const std::string& param, const char* wanted, const ApiJson& value);
// Returns a string of min_bytes to max_bytes; ApiError 400 for any other value.
std::string read_text(const std::string& param, const ApiJson& value, size_t min_bytes,
                      size_t max_bytes);
// Throws ApiError 400 for a non-null member that is not in `known`.
void check_members(const std::string& param, const ApiJson& object,
                   std::initializer_list<std::string_view> known);

template <class Request>
class FieldTable {
 public:
  using Reader = std::function<void(Request&, const ApiJson&, const Field&)>;

  // These add a row, and return it for further settings; the reference is valid until the next row
  // is added. member: of Request or a base class. preset: Field::default_json.
  template <class Owner>
  Field& boolean(const char* name, bool Owner::*member, const char* preset, const char* help) {
    return add(
        name, FieldKind::kBoolean, preset, help,
        [member](Request& r, const ApiJson& v, const Field& f) { r.*member = read_boolean(f, v); });
  }
  template <class Owner, class Integer>
  Field& integer(const char* name, Integer Owner::*member, const char* preset, const char* help) {
    return add(name, FieldKind::kInteger, preset, help,
               [member](Request& r, const ApiJson& v, const Field& f) {
                 if constexpr (std::is_same_v<Integer, int32_t>)
                   r.*member = static_cast<int32_t>(read_integer(f, v));
                 else
                   r.*member = read_integer(f, v);
               });
  }
  template <class Owner>
  Field& number(const char* name, double Owner::*member, const char* preset, const char* help) {
    return add(
        name, FieldKind::kNumber, preset, help,
        [member](Request& r, const ApiJson& v, const Field& f) { r.*member = read_number(f, v); });
  }
  template <class Owner>
  Field& string(const char* name, std::string Owner::*member, const char* help) {
    return add(
        name, FieldKind::kString, "", help,
        [member](Request& r, const ApiJson& v, const Field& f) { r.*member = read_string(f, v); });
  }
  // shape: its JSON Schema.
  Field& other(const char* name, FieldKind kind, const char* preset, const char* shape,
               const char* help, Reader reader) {
    Field& field = add(name, kind, preset, help, std::move(reader));
    field.shape = shape;
    return field;
  }
  // Rows of the other values of FieldStatus. trivial: Field::trivial.
  void ignored(const char* name, const char* help) {
    add(name, FieldKind::kOther, "", help, {}).status = FieldStatus::kIgnored;
  }
  void unavailable(const char* name, std::vector<std::string> trivial, const char* help) {
    Field& field = add(name, FieldKind::kOther, "", help, {});
    field.status = FieldStatus::kUnavailable;
    field.trivial = std::move(trivial);
  }
  void refused(const char* name, std::vector<std::string> trivial, const char* help) {
    unavailable(name, std::move(trivial), help);
    fields_.back().status = FieldStatus::kRefused;
  }
  // Adds another name of a field that has a row already, with the same bounds and reader.
  Field& alias(const char* name, const char* of) {
    const size_t row = by_name_.at(of);
    by_name_.emplace(name, fields_.size());
    readers_.push_back(Reader(readers_[row]));
    Field field = fields_[row];
    field.name = name;
    field.alias_of = of;
    field.help = concat("As `", of, "`.");
    field.is_required = false;
    return fields_.emplace_back(std::move(field));
  }
  // Adds the PeerField rows of an endpoint; call after its own fields. endpoint: letter of
  // kPeerEndpoints. A PeerField of kUsed is either an alias of a row, or has its own row already:
  // anything else is a program error.
  void add_peer_fields(char endpoint) {
    for (const PeerField& row : peer_fields()) {
      if (std::string_view(row.endpoints).find(endpoint) == std::string_view::npos) continue;
      if (row.effect == PeerEffect::kNoEffect)
        ignored(row.name, row.words);
      else if (row.effect == PeerEffect::kRefused)
        unavailable(row.name, values_of(row.nothing), row.words);
      else if (*row.words != '\0')
        alias(row.name, row.words).trivial = values_of(row.nothing);
      else
        TRIREME_CHECK(by_name_.contains(row.name), "no field ", row.name, " at ", endpoint);
    }
  }

  const std::vector<Field>& fields() const { return fields_; }

  // Reads an object into a request that holds the defaults; null values count as absent. Appends
  // names of unknown fields to `unknown`, up to 16 in all, each truncated to 64 bytes. ApiError for
  // an invalid, unavailable or refused field, two different values of one field, and a missing
  // required field.
  void read(const ApiJson& object, Request& request, std::vector<std::string>& unknown) const {
    for (const auto& [name, value] : object.items()) {
      const auto at = by_name_.find(name);
      if (at == by_name_.end()) {
        if (unknown.size() < kMaxUnknown) unknown.push_back(name.substr(0, kMaxName));
        continue;
      }
      if (value.is_null()) continue;
      const Field& field = fields_[at->second];
      if (field.status == FieldStatus::kIgnored) continue;
      if (field.status != FieldStatus::kRead) {
        check_unavailable(field, value);
        continue;
      }
      if (is_trivial(field, value)) continue;
      check_value(field, value);
      readers_[at->second](request, value, field);
    }
    check_aliases(fields_, object);
    for (const Field& field : fields_)
      if (field.is_required && (!object.contains(field.name) || object[field.name].is_null()))
        throw ApiError(400, concat("the field \"", field.name, "\" is required"), field.name,
                       "missing_field");
  }

 private:
  static constexpr size_t kMaxUnknown = 16, kMaxName = 64;
  Field& add(const char* name, FieldKind kind, const char* preset, const char* help,
             Reader reader) {
    by_name_.emplace(name, fields_.size());
    readers_.push_back(std::move(reader));
    Field& field = fields_.emplace_back();
    field.name = name;
    field.kind = kind;
    field.default_json = preset;
    field.help = help;
    return field;
  }
  std::vector<Field> fields_;
  std::vector<Reader> readers_;
  std::map<std::string, size_t, std::less<>> by_name_;
};

}  // namespace trireme
