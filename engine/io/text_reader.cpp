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

// Longer documents do not fit the tokenizers' 32-bit sizes; also what a decompression bomb hits.
constexpr size_t kMaxDocumentBytes = size_t{1} << 30;
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

bool blank(std::string_view line) {
  return line.find_first_not_of(" \t\r\n\f\v") == std::string_view::npos;
}

std::string place(const TextFile& file, int64_t line) {
  return line > 0 ? concat(file.path, ":", line) : file.path;
}

}  // namespace

// Lines or the whole of one file, through a buffer.
class TextReader::Stream {
 public:
  explicit Stream(const TextFile& file)
      : file_(file), bytes_(open_byte_stream(file)), buffer_(256 << 10) {}

  // The next line without its end, appended to *line unless that is null. False at the end.
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

  int64_t position() const { return bytes_->position(); }

 private:
  bool refill() {
    used_ = 0;
    filled_ = bytes_->read(buffer_.data(), buffer_.size());
    return filled_ > 0;
  }
  void append(std::string& to, std::string_view piece) const {
    if (to.size() + piece.size() > kMaxDocumentBytes) {
      fail_input("a document of ", file_.path, " has more than ", kMaxDocumentBytes,
                 " bytes: split it, or give one document a line as .jsonl");
    }
    to.append(piece);
  }
  const TextFile& file_;
  std::unique_ptr<ByteStream> bytes_;
  std::vector<char> buffer_;
  size_t used_ = 0, filled_ = 0;
};

TextReader::TextReader(std::vector<TextFile> files, std::string json_key)
    : files_(std::move(files)), json_key_(std::move(json_key)) {
  for (const TextFile& file : files_) bytes_total_ += file.bytes;
}

TextReader::~TextReader() = default;

int64_t TextReader::bytes_read() const { return bytes_done_ + (stream_ ? stream_->position() : 0); }

// Blank lines are told from others by reading them, also when the record is skipped.
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

bool TextReader::next(TextRecord* record) {
  for (; current_ < files_.size(); ++current_, stream_.reset(), line_ = 0) {
    const TextFile& file = files_[current_];
    if (record != nullptr) record->file = current_;
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
    if (!stream_) stream_ = std::make_unique<Stream>(file);
    if (next_line(record)) {
      if (record != nullptr) record->line = line_;
      return true;
    }
    bytes_done_ += file.bytes;
  }
  return false;
}

std::string TextReader::document(TextRecord&& record) const {
  const TextFile& file = files_[record.file];
  std::string text = std::move(record.bytes);
  if (text.find('\0') != std::string::npos) {
    fail_input(place(file, record.line),
               " is binary (it contains NUL bytes): give text files only");
  }
  const size_t bad = find_invalid_utf8(text);
  if (bad != text.size()) {
    const auto newlines = std::count(text.begin(), text.begin() + static_cast<int64_t>(bad), '\n');
    fail_input(place(file, record.line > 0 ? record.line : newlines + 1),
               " is not UTF-8 text (byte ", bad, " of the ", record.line > 0 ? "line" : "file",
               "): convert it, for example with iconv");
  }
  if (!file.json_lines) {
    if (text.starts_with(kByteOrderMark)) text.erase(0, kByteOrderMark.size());
    return text;
  }
  const auto json = parse_json_text<nlohmann::json>(text);
  if (json.is_discarded()) {
    if (has_lone_surrogate(text))
      fail_input(
          place(file, record.line),
          " has a \\u escape of half a surrogate pair, which is no character; each line must "
          "be one JSON object of Unicode text");
    fail_input(place(file, record.line), " is not valid JSON; each line must be one JSON object");
  }
  if (!json.is_object()) {
    fail_input(place(file, record.line), " is a JSON ", json.type_name(),
               "; each line must be one JSON object");
  }
  const auto found = json.find(json_key_);
  if (found == json.end()) {
    fail_input(place(file, record.line), " has no key \"", json_key_,
               "\"; choose the key of the text with --json-key");
  }
  if (!found->is_string()) {
    fail_input(place(file, record.line), ": the value of \"", json_key_, "\" is a ",
               found->type_name(), ", not a string");
  }
  return found->get<std::string>();
}

}  // namespace trireme
