// Writer of compact JSON: appends to a string, in the order of the calls.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace trireme {

class JsonWriter {
 public:
  explicit JsonWriter(std::string& out) : out_(out) {}

  JsonWriter& begin_object();
  JsonWriter& end_object();
  JsonWriter& begin_array();
  JsonWriter& end_array();
  JsonWriter& key(std::string_view name);
  JsonWriter& null();
  JsonWriter& string(std::string_view utf8);  // escapes; does not check that it is valid UTF-8
  JsonWriter& integer(int64_t value);
  JsonWriter& number(double value);  // finite; shortest form that reads back equal
  JsonWriter& number(float value);   // same, read back as a float
  JsonWriter& boolean(bool value);
  JsonWriter& json(std::string_view text);  // value that is JSON already

 private:
  void value();
  std::string& out_;
  bool comma_ = false;  // write a comma before the next item
};

}  // namespace trireme
