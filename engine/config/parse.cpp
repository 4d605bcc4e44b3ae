#include "engine/config/parse.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/core/error.h"
#include "engine/core/lfs_pointer.h"

namespace trireme {
namespace {

// "line:column" (both from 1) of a byte offset.
std::string place_of(const std::string& json_text, size_t offset) {
  const auto end =
      json_text.begin() + static_cast<std::ptrdiff_t>(std::min(offset, json_text.size()));
  const auto line = 1 + std::count(json_text.begin(), end, '\n');
  auto start = end;
  while (start != json_text.begin() && *(start - 1) != '\n') --start;
  return concat(line, ":", 1 + (end - start));
}

// Events of nlohmann's parser (which keeps no stack of its own calls, so depth costs no stack).
// Building the document here is what lets a repeated key and a deep nesting be refused.
class Builder : public nlohmann::json_sax<Json> {
 public:
  explicit Builder(const std::string& json_text) : text_(json_text) {}

  bool null() override { return put(nullptr); }
  bool boolean(bool value) override { return put(value); }
  bool number_integer(number_integer_t value) override { return put(value); }
  bool number_unsigned(number_unsigned_t value) override { return put(value); }
  bool number_float(number_float_t value, const string_t&) override { return put(value); }
  bool string(string_t& value) override { return put(std::move(value)); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return open(Json::object()); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& name) override {
    if (!levels_.back().names.insert(name).second) {
      std::string path;
      for (size_t i = 0; i + 1 < levels_.size(); ++i)
        if (!levels_[i].name.empty()) path += levels_[i].name + ".";
      failure = concat(shown(Json(path + name)), " is given twice");
      return false;
    }
    levels_.back().name = std::move(name);
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& problem) override {
    // nlohmann: "[json.exception...] parse error at line L, column C: what"; ours says the place.
    std::string what = problem.what();
    if (const size_t column = what.find("column "); column != std::string::npos)
      if (const size_t colon = what.find(": ", column); colon != std::string::npos)
        what.erase(0, colon + 2);
    if (what.starts_with("[json")) what.erase(0, what.find("] ") + 2);
    const size_t at = position == 0 ? 0 : position - 1;
    place = place_of(text_, at);
    failure = "not valid JSON: " + what;
    if (at < text_.size() && (text_[at] == '/' || text_[at] == '#'))
      failure += " (JSON has no comments)";
    return false;
  }

  Json document;
  std::string failure;
  std::string place;  // empty: the parser did not say

 private:
  struct Level {
    Json* node;
    std::set<std::string> names;  // of the object's keys so far
    std::string name;             // key of the value to come
  };

  Json* attach(Json&& value) {
    if (levels_.empty()) {
      document = std::move(value);
      return &document;
    }
    Json& parent = *levels_.back().node;
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return &parent.back();
    }
    // Not operator[]: ordered_json would search all earlier keys, quadratic in a hostile file.
    auto& members = parent.get_ref<Json::object_t&>();
    members.Container::emplace_back(levels_.back().name, std::move(value));
    return &members.back().second;
  }
  bool put(Json&& value) {
    attach(std::move(value));
    return true;
  }
  bool open(Json&& value) {
    if (levels_.size() >= static_cast<size_t>(kMaxConfigDepth)) {
      failure = concat("nested deeper than ", kMaxConfigDepth, " levels");
      return false;
    }
    levels_.push_back({attach(std::move(value)), {}, {}});
    return true;
  }
  bool close() {
    levels_.pop_back();
    return true;
  }

  const std::string& text_;
  std::vector<Level> levels_;
};

}  // namespace

Json parse_json(const std::string& json_text, const std::string& name) {
  if (static_cast<int64_t>(json_text.size()) > kMaxConfigBytes)
    fail_input(name, ": ", json_text.size(), " bytes; a configuration has at most ",
               kMaxConfigBytes);
  Builder builder(json_text);
  if (Json::sax_parse(json_text, &builder)) return std::move(builder.document);
  if (builder.place.empty()) fail_input(name, ": ", builder.failure);
  fail_input(name, ":", builder.place, ": ", builder.failure);
}

Json parse_json_file(const std::string& path) {
  std::error_code failure;
  if (std::filesystem::is_directory(path, failure))
    fail_input(path, ": is a folder, not a JSON file");
  std::ifstream file(path, std::ios::binary);
  if (!file) fail_input(path, ": cannot be read: ", std::strerror(errno));
  // In pieces, because the size of a pipe is not known beforehand; one byte over the limit is enough.
  std::string content;
  std::array<char, 1 << 16> piece;
  while (static_cast<int64_t>(content.size()) <= kMaxConfigBytes &&
         (file.read(piece.data(), piece.size()), file.gcount() > 0))
    content.append(piece.data(), static_cast<size_t>(file.gcount()));
  if (file.bad()) fail_input(path, ": cannot be read: ", std::strerror(errno));
  if (content.empty()) fail_input(path, ": is empty");
  refuse_lfs_pointer(content, path);
  return parse_json(content, path);
}

}  // namespace trireme
