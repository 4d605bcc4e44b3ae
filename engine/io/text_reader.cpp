#include "engine/io/text_reader.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine/core/error.h"
#include "engine/core/utf8.h"
#include "engine/io/byte_stream.h"
#include "engine/io/strict_json.h"

namespace trireme {
namespace {

// Limit from the tokenizers' 32-bit sizes; it also stops decompression bombs.
constexpr size_t kMaxDocumentBytes = size_t{1} << 30;
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

bool blank(std::string_view line) {
  return line.find_first_not_of(" \t\r\n\f\v") == std::string_view::npos;
}

std::string place_of(const TextFile& file, int64_t line, int64_t element) {
  if (line == 0) return file.path;
  return concat(file.path, ":", line, element > 0 ? concat(": record ", element) : std::string());
}

// Expected form of a record, for messages.
std::string wanted(const TextFile& file, int64_t element) {
  if (element > 0) return "each record must be a JSON object";
  return concat("each line must be one JSON object",
                file.may_be_array ? ", or the file one array of them" : "");
}

}  // namespace

// Buffered stream of one file: its lines, the elements of its array, or its whole content.
class TextReader::Stream {
 public:
  explicit Stream(const TextFile& file)
      : file_(file), bytes_(open_byte_stream(file)), buffer_(256 << 10) {}

  // Appends the next line without its end to *line unless that is null. False at the end.
  bool line(std::string* line) {
    bool any = false;
    for (;;) {
      if (used_ == filled_ && !refill()) return any;
      any = true;
      const char* from = buffer_.data() + used_;
      const auto* end = static_cast<const char*>(std::memchr(from, '\n', filled_ - used_));
      const size_t count = end != nullptr ? static_cast<size_t>(end - from) : filled_ - used_;
      if (line != nullptr) append(*line, {from, count});
      used_ += count + (end != nullptr ? 1 : 0);
      if (end != nullptr) return true;
    }
  }

  void all(std::string& text) {
    while (used_ < filled_ || refill()) {
      append(text, {buffer_.data() + used_, filled_ - used_});
      used_ = filled_;
    }
  }

  // Whether the file is an array; skips its opening bracket. To be called at the start.
  bool enter_array() {
    if (!file_.may_be_array || !refill()) return false;
    const std::string_view begin(buffer_.data(), filled_);
    const size_t mark = begin.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0;
    const size_t first = begin.find_first_not_of(kBlank, mark);
    if (first == begin.npos || begin[first] != '[') return false;
    array_line_ += std::count(begin.begin(), begin.begin() + static_cast<int64_t>(first), '\n');
    used_ = first + 1;
    return in_array_ = true;
  }
  bool in_array() const { return in_array_; }
  int64_t element() const { return element_; }  // number of the last element

  // Appends the next element of the array to *text unless that is null, and sets the line where it
  // starts. False at the end of the array.
  bool element(std::string* text, int64_t& line) {
    int next = skip_blank();
    if (element_ > 0 && next == ',') {
      ++used_;
      next = skip_blank();
      if (next == ']') fail_array("a comma follows the last record");
    } else if (element_ > 0 && next >= 0 && next != ']') {
      fail_array("no comma follows the record");
    }
    if (next == ']') return end_array();
    if (next == ',') fail_array("there is no record between two commas, or before the first");
    ++element_;
    line = array_line_;
    while (!value_part(text)) {
    }
    depth_ = 0;
    return true;
  }

  int64_t position() const { return bytes_->position(); }

 private:
  static constexpr std::string_view kBlank = " \t\r\n";

  [[noreturn]] void fail_array(const char* why) const {
    fail_input(place_of(file_, array_line_, element_), ": ", why,
               "; the file must be one JSON array of objects, or one object per line");
  }
  // Next character that is not white space, not consumed; -1 at the end.
  int skip_blank() {
    for (;; ++used_) {
      if (used_ == filled_ && !refill()) return -1;
      if (kBlank.find(buffer_[used_]) == kBlank.npos)
        return static_cast<unsigned char>(buffer_[used_]);
      array_line_ += buffer_[used_] == '\n' ? 1 : 0;
    }
  }
  bool end_array() {
    ++used_;
    if (skip_blank() >= 0) fail_array("text follows the end of the array");
    return false;
  }
  // Appends the buffered part of an element, up to the comma or bracket that ends it. True at the
  // end of the element.
  bool value_part(std::string* text) {
    if (used_ == filled_ && !refill())
      fail_array("the file ends in the middle of the array; it is cut off");
    const size_t from = used_;
    while (used_ < filled_ && !ends_value(buffer_[used_])) ++used_;
    if (text != nullptr) append(*text, {buffer_.data() + from, used_ - from});
    return used_ < filled_;
  }
  bool ends_value(char c) {
    array_line_ += c == '\n' ? 1 : 0;
    if (quoted_) {
      if (!escaped_ && c == '"') quoted_ = false;
      escaped_ = !escaped_ && c == '\\';
      return false;
    }
    if (c == '"') quoted_ = true;
    if (c == '{' || c == '[') ++depth_;
    if (depth_ == 0) return c == ',' || c == ']';
    if (c == '}' || c == ']') --depth_;
    return false;
  }
  bool refill() {
    used_ = 0;
    filled_ = bytes_->read(buffer_.data(), buffer_.size());
    return filled_ > 0;
  }
  void append(std::string& to, std::string_view piece) const {
    if (to.size() + piece.size() > kMaxDocumentBytes) {
      fail_input("a document of ", file_.path, " has more than ", kMaxDocumentBytes,
                 " bytes: split it, or give one document per line as .jsonl");
    }
    to.append(piece);
  }
  const TextFile& file_;
  std::unique_ptr<ByteStream> bytes_;
  std::vector<char> buffer_;
  size_t used_ = 0, filled_ = 0;
  bool in_array_ = false, quoted_ = false, escaped_ = false;
  int64_t element_ = 0, depth_ = 0, array_line_ = 1;
};

TextReader::TextReader(std::vector<TextFile> files, std::string json_key)
    : files_(std::move(files)), json_key_(std::move(json_key)) {
  for (const TextFile& file : files_) bytes_total_ += file.bytes;
}

TextReader::~TextReader() = default;

int64_t TextReader::bytes_read() const { return bytes_done_ + (stream_ ? stream_->position() : 0); }

// A line must be read to know whether it is blank, even if the record is skipped.
bool TextReader::next_line(TextRecord* record) {
  std::string own;
  std::string& line = record != nullptr ? record->bytes : own;
  for (;;) {
    line.clear();
    if (!stream_->line(&line)) return false;
    ++line_;
    if (line_ == 1 && line.starts_with(kByteOrderMark)) line.erase(0, kByteOrderMark.size());
    if (!blank(line)) return true;
  }
}

bool TextReader::next_element(TextRecord* record) {
  if (record != nullptr) record->bytes.clear();
  if (!stream_->element(record != nullptr ? &record->bytes : nullptr, line_)) return false;
  if (record != nullptr) record->element = stream_->element();
  return true;
}

bool TextReader::next(TextRecord* record) {
  for (; current_ < files_.size(); ++current_, stream_.reset(), line_ = 0) {
    const TextFile& file = files_[current_];
    if (record != nullptr) {
      record->file = current_;
      record->element = 0;
    }
    if (!file.json_lines) {
      if (record != nullptr) {
        record->bytes.clear();
        record->line = 0;
        Stream(file).all(record->bytes);
      }
      bytes_done_ += file.bytes;
      ++current_;
      return true;
    }
    if (!stream_) {
      stream_ = std::make_unique<Stream>(file);
      stream_->enter_array();
    }
    if (stream_->in_array() ? next_element(record) : next_line(record)) {
      if (record != nullptr) record->line = line_;
      return true;
    }
    bytes_done_ += file.bytes;
  }
  return false;
}

std::string TextReader::place(const TextRecord& record) const {
  return place_of(files_[record.file], record.line, record.element);
}

std::string TextReader::document(TextRecord&& record) const {
  const TextFile& file = files_[record.file];
  const auto where = [&] { return place(record); };
  const auto must_be = [&] { return wanted(file, record.element); };
  std::string text = std::move(record.bytes);
  if (text.find('\0') != std::string::npos) {
    fail_input(where(), " is binary (it contains NUL bytes): give text files only");
  }
  const size_t bad = find_invalid_utf8(text);
  if (bad != text.size()) {
    const auto newlines = std::count(text.begin(), text.begin() + static_cast<int64_t>(bad), '\n');
    fail_input(record.line > 0 ? where() : place_of(file, newlines + 1, 0),
               " is not UTF-8 text (byte ", bad, " of the ",
               record.element > 0 ? "record"
               : record.line > 0  ? "line"
                                  : "file",
               "): convert it, for example with iconv");
  }
  if (!file.json_lines) {
    if (text.starts_with(kByteOrderMark)) text.erase(0, kByteOrderMark.size());
    return text;
  }
  const auto json = parse_json_text<nlohmann::json>(text);
  if (json.is_discarded()) {
    if (has_lone_surrogate(text))
      fail_input(where(), " has a \\u escape of half a surrogate pair, which is not a character; ",
                 must_be(), " of Unicode text");
    fail_input(where(), " is not valid JSON; ", must_be());
  }
  if (!json.is_object()) {
    fail_input(where(), " is a JSON ", json.type_name(), "; ", must_be());
  }
  const auto found = json.find(json_key_);
  if (found == json.end()) {
    fail_input(where(), " has no key \"", json_key_,
               "\"; choose the key of the text with --json-key");
  }
  if (!found->is_string()) {
    fail_input(where(), ": the value of \"", json_key_, "\" is a ", found->type_name(),
               ", not a string");
  }
  return found->get<std::string>();
}

}  // namespace trireme
