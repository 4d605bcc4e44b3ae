#include "serving/api/json_writer.h"

#include <array>
#include <charconv>
#include <cmath>

#include "engine/core/error.h"

namespace trireme {

void JsonWriter::value() {
  if (comma_) out_ += ',';
  comma_ = true;
}

JsonWriter& JsonWriter::begin_object() {
  value();
  out_ += '{';
  comma_ = false;
  return *this;
}

JsonWriter& JsonWriter::end_object() {
  out_ += '}';
  comma_ = true;
  return *this;
}

JsonWriter& JsonWriter::begin_array() {
  value();
  out_ += '[';
  comma_ = false;
  return *this;
}

JsonWriter& JsonWriter::end_array() {
  out_ += ']';
  comma_ = true;
  return *this;
}

JsonWriter& JsonWriter::key(std::string_view name) {
  string(name);
  out_ += ':';
  comma_ = false;
  return *this;
}

JsonWriter& JsonWriter::null() { return json("null"); }

JsonWriter& JsonWriter::string(std::string_view utf8) {
  value();
  out_ += '"';
  size_t copied = 0;
  for (size_t i = 0; i < utf8.size(); ++i) {
    const auto c = static_cast<unsigned char>(utf8[i]);
    if (c >= 0x20 && c != '"' && c != '\\') continue;
    out_.append(utf8, copied, i - copied);
    copied = i + 1;
    switch (c) {
      case '"': out_ += "\\\""; break;
      case '\\': out_ += "\\\\"; break;
      case '\n': out_ += "\\n"; break;
      case '\r': out_ += "\\r"; break;
      case '\t': out_ += "\\t"; break;
      default: {
        constexpr char kHex[] = "0123456789abcdef";
        out_ += "\\u00";
        out_ += kHex[c >> 4];
        out_ += kHex[c & 15];
      }
    }
  }
  out_.append(utf8, copied);
  out_ += '"';
  return *this;
}

JsonWriter& JsonWriter::integer(int64_t value) { return json(std::to_string(value)); }

JsonWriter& JsonWriter::number(double value) {
  TRIREME_CHECK(std::isfinite(value), "expected a finite number, got ", value);
  return json(text(value));
}

JsonWriter& JsonWriter::number(float value) {
  TRIREME_CHECK(std::isfinite(value), "expected a finite number, got ", value);
  std::array<char, 32> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
  return json({digits.data(), static_cast<size_t>(end - digits.data())});
}

JsonWriter& JsonWriter::boolean(bool value) { return json(value ? "true" : "false"); }

JsonWriter& JsonWriter::json(std::string_view text) {
  value();
  out_ += text;
  return *this;
}

}  // namespace trireme
