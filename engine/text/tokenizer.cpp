#include "engine/text/tokenizer.h"

#include "engine/core/error.h"
#include "engine/core/utf8.h"
#include "engine/text/sentencepiece.h"

namespace trireme {
namespace {

class ByteTokenizer : public Tokenizer {
 public:
  std::string name() const override { return "byte"; }
  int64_t vocab_size() const override { return kEndOfText + 1; }
  int32_t bos_id() const override { return kEndOfText; }
  int32_t eod_id() const override { return kEndOfText; }
  std::vector<int32_t> encode(std::string_view text) const override {
    std::vector<int32_t> ids(text.size());
    for (size_t i = 0; i < text.size(); ++i) ids[i] = static_cast<uint8_t>(text[i]);
    return ids;
  }
  bool is_control(int32_t id) const override {
    check_id(id);
    return id == kEndOfText;
  }
  void append_bytes(int32_t id, bool /*at_start*/, std::string& out) const override {
    if (!is_control(id)) out.push_back(static_cast<char>(id));
  }

 private:
  static constexpr int32_t kEndOfText = 256;
};

}  // namespace

void Tokenizer::check_id(int32_t id) const {
  TRIREME_CHECK(id >= 0 && id < vocab_size(), "token ", id, " is outside the vocabulary of ",
                vocab_size(), " of tokenizer ", name());
}

std::string Tokenizer::decode(std::span<const int32_t> ids) const {
  std::string out;
  bool at_start = true;
  for (const int32_t id : ids) {
    append_bytes(id, at_start, out);
    at_start = at_start && is_control(id);
  }
  return out;
}

std::unique_ptr<Tokenizer> make_byte_tokenizer() { return std::make_unique<ByteTokenizer>(); }

std::unique_ptr<Tokenizer> load_tokenizer(const std::string& spec) {
  if (spec == "byte") return make_byte_tokenizer();
  if (spec.ends_with(".model")) return load_sentencepiece(spec);
  fail_input(
      "unknown tokenizer \"", spec, "\": give \"byte\" or the path of a SentencePiece model ",
      "(a file ending in .model); names of a hub and tokenizer.json files are not available ",
      "in this version");
}

std::string StreamDecoder::push(int32_t id) {
  tokenizer_.append_bytes(id, at_start_, pending_);
  at_start_ = at_start_ && tokenizer_.is_control(id);
  return take_complete_utf8(pending_);
}

std::string StreamDecoder::finish() {
  const bool unfinished = !pending_.empty();
  pending_.clear();
  at_start_ = true;
  return unfinished ? "\xEF\xBF\xBD" : "";
}

}  // namespace trireme
