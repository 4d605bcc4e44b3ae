#include <algorithm>

#include "engine/core/error.h"
#include "engine/core/tensor.h"
#include "engine/core/utf8.h"
#include "engine/io/token_file.h"
#include "training/data/prepare.h"

namespace trireme {
namespace {

constexpr int64_t kScanTokens = 1 << 20;
constexpr int64_t kShownTokens = 64;
constexpr size_t kShownBytes = 160;

struct Lengths {
  int64_t shortest = 0, median = 0, longest = 0;
};

Lengths document_lengths(const TokenFile& file) {
  std::vector<int64_t> lengths;
  for (int64_t d = 0; d < file.num_documents(); ++d) {
    lengths.push_back(file.sequence_begin(file.document_begin(d + 1)) -
                      file.sequence_begin(file.document_begin(d)));
  }
  if (lengths.empty()) return {};
  std::sort(lengths.begin(), lengths.end());
  return {lengths.front(), lengths[lengths.size() / 2], lengths.back()};
}

int32_t largest_token(const TokenFile& file) {
  std::vector<int32_t> tokens(static_cast<size_t>(std::min(kScanTokens, file.num_tokens())));
  int32_t largest = -1;
  for (int64_t at = 0; at < file.num_tokens(); at += kScanTokens) {
    const int64_t count = std::min(kScanTokens, file.num_tokens() - at);
    file.copy_tokens(at, count, tokens.data());
    largest = std::max(largest, *std::max_element(tokens.begin(), tokens.begin() + count));
  }
  return largest;
}

// One line of text, with escapes for line breaks and terminal control characters.
std::string printable(std::string text) {
  std::string out;
  text = take_complete_utf8(text);
  for (const char c : text) {
    constexpr char kDigits[] = "0123456789abcdef";
    const auto byte = static_cast<uint8_t>(c);
    if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (byte < 0x20 || byte == 0x7f) {
      out += {'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]};
    } else {
      out += c;
    }
  }
  return out;
}

std::string show_document(const TokenFile& file, int64_t document, const Tokenizer* tokenizer) {
  const int64_t begin = file.sequence_begin(file.document_begin(document));
  const int64_t length = file.sequence_begin(file.document_begin(document + 1)) - begin;
  std::vector<int32_t> tokens(static_cast<size_t>(std::min(kShownTokens, length)));
  file.copy_tokens(begin, static_cast<int64_t>(tokens.size()), tokens.data());
  std::string out = concat("document ", document, " (", length, " tokens):");
  if (tokenizer != nullptr) {
    std::string decoded = tokenizer->decode(tokens);
    const bool cut = decoded.size() > kShownBytes || length > kShownTokens;
    decoded.resize(std::min(decoded.size(), kShownBytes));
    return concat(out, " \"", printable(decoded), "\"", cut ? " ..." : "", "\n");
  }
  tokens.resize(std::min<size_t>(tokens.size(), 16));
  for (const int32_t token : tokens) out += concat(" ", token);
  return concat(out, length > 16 ? " ..." : "", "\n");
}

}  // namespace

std::string inspect_token_file(const std::string& prefix, const Tokenizer* tokenizer,
                               int64_t show_documents) {
  const TokenFile file(prefix);
  const int32_t largest = largest_token(file);
  const Lengths lengths = document_lengths(file);
  std::string out = concat("token file    ", file.prefix(), ".bin and .idx\n");
  out += concat("element type  ", file.type_text(), "\n");
  out += concat("tokens        ", file.num_tokens(), "\n");
  out += concat("sequences     ", file.num_sequences(), "\n");
  out += concat("documents     ", file.num_documents(), " (tokens: shortest ", lengths.shortest,
                ", median ", lengths.median, ", longest ", lengths.longest, ")\n");
  out += concat("largest id    ", largest, "\n");
  if (tokenizer != nullptr) {
    if (largest >= tokenizer->vocab_size()) {
      fail_input("token file ", file.prefix(), " has id ", largest, ", but tokenizer ",
                 tokenizer->name(), " has only ", tokenizer->vocab_size(),
                 " ids: the file was made with another tokenizer");
    }
    out += concat("tokenizer     ", tokenizer->name(), " (", tokenizer->vocab_size(), " ids)\n");
  }
  out += "checks        index, sizes and every token: ok\n";
  for (int64_t d = 0; d < std::min(show_documents, file.num_documents()); ++d) {
    out += show_document(file, d, tokenizer);
  }
  out.pop_back();  // the caller prints the last line end
  return out;
}

}  // namespace trireme
