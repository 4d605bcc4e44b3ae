#include "engine/config/parse.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/core/error.h"
#include "engine/core/lfs_pointer.h"
#include "engine/io/input_file.h"
#include "engine/io/strict_json_builder.h"

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

// Reports the line and column of a syntax error and the whole path of a duplicate key.
class Builder final : public StrictJsonBuilder<Json> {
 public:
  Builder(const std::string& json_text, const std::string& name)
      : StrictJsonBuilder(name, {.depth = kMaxConfigDepth, .keys_per_object = SIZE_MAX}),
        text_(json_text) {}

  bool parse_error(std::size_t position, const std::string& /*token*/,
                   const Json::exception& problem) override {
    // nlohmann: "[json.exception...] parse error at line L, column C: what"; our message has its
    // own position.
    std::string message = problem.what();
    if (const size_t column = message.find("column "); column != std::string::npos)
      if (const size_t colon = message.find(": ", column); colon != std::string::npos)
        message.erase(0, colon + 2);
    if (message.starts_with("[json")) message.erase(0, message.find("] ") + 2);
    const size_t at = position == 0 ? 0 : position - 1;
    if (at < text_.size() && (text_[at] == '/' || text_[at] == '#'))
      message += " (JSON has no comments)";
    fail_input(what(), ":", place_of(text_, at), ": not valid JSON: ", message);
  }

 private:
  void refuse_repeated(const std::string& name) override {
    std::string path;
    for (size_t i = 0; i + 1 < levels().size(); ++i)
      if (!levels()[i].key.empty()) path += levels()[i].key + ".";
    fail_input(what(), ": ", shown(Json(path + name)), " is given twice");
  }
  void refuse_depth() override {
    fail_input(what(), ": nested deeper than ", limits().depth, " levels");
  }
  const std::string& text_;
};

}  // namespace

Json parse_json(const std::string& json_text, const std::string& name) {
  if (static_cast<int64_t>(json_text.size()) > kMaxConfigBytes)
    fail_input(name, ": ", json_text.size(), " bytes; a configuration has at most ",
               kMaxConfigBytes);
  Builder builder(json_text, name);
  Json::sax_parse(json_text, &builder);
  return builder.take();
}

std::string without_python_numbers(const std::string& json_text) {
  if (json_text.find("NaN") == json_text.npos && json_text.find("Infinity") == json_text.npos)
    return json_text;
  const auto is_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; };
  const std::string_view text = json_text;
  std::string out;
  bool quoted = false;
  for (size_t at = 0; at < text.size();) {
    const char c = text[at];
    const bool begins = !quoted && (at == 0 || !is_word(text[at - 1]));
    size_t length = 0;
    for (const std::string_view name : {"NaN", "Infinity", "-Infinity"})
      if (begins && text.substr(at).starts_with(name) &&
          (at + name.size() == text.size() || !is_word(text[at + name.size()])))
        length = name.size();
    if (length > 0) out += concat("\"", text.substr(at, length), "\"");
    if (length == 0) out += c;
    if (quoted && c == '\\' && at + 1 < text.size()) out += text[++at];
    if (c == '"') quoted = !quoted;
    at += std::max<size_t>(length, 1);
  }
  return out;
}

namespace {

std::string read_config_text(const std::string& path) {
  std::error_code failure;
  if (std::filesystem::is_directory(path, failure))
    fail_input(path, ": is a folder, not a JSON file");
  require_file_or_pipe(path);
  std::ifstream file(path, std::ios::binary);
  if (!file) fail_input(path, ": cannot be read: ", std::strerror(errno));
  // In pieces, because the size of a pipe is not known beforehand; one byte above the limit is
  // enough to refuse.
  std::string content;
  std::array<char, 1 << 16> piece;
  while (static_cast<int64_t>(content.size()) <= kMaxConfigBytes &&
         (file.read(piece.data(), piece.size()), file.gcount() > 0))
    content.append(piece.data(), static_cast<size_t>(file.gcount()));
  if (file.bad()) fail_input(path, ": cannot be read: ", std::strerror(errno));
  if (content.empty()) fail_input(path, ": is empty");
  refuse_lfs_pointer(content, path);
  return content;
}

}  // namespace

Json parse_json_file(const std::string& path) { return parse_json(read_config_text(path), path); }

Json parse_published_json_file(const std::string& path) {
  return parse_json(without_python_numbers(read_config_text(path)), path);
}

}  // namespace trireme
