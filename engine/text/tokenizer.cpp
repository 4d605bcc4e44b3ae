#include "engine/text/tokenizer.h"

#include <filesystem>

#include "engine/core/error.h"
#include "engine/io/input_file.h"
#include "engine/text/control_split.h"
#include "engine/text/gguf_tokenizer.h"
#include "engine/text/sentencepiece.h"
#include "engine/text/tokenizer_json.h"

namespace trireme {
namespace {

class ByteTokenizer : public Tokenizer {
 public:
  std::string name() const override { return "byte"; }
  int64_t vocab_size() const override { return kEndOfText + 1; }
  int32_t bos_id() const override { return kEndOfText; }
  int32_t eod_id() const override { return kEndOfText; }
  int32_t find(std::string_view token) const override {
    if (token == kEndOfTextName) return kEndOfText;
    return token.size() == 1 ? static_cast<uint8_t>(token[0]) : -1;
  }
  std::string token(int32_t id) const override {
    return is_control(id) ? kEndOfTextName : std::string(1, static_cast<char>(id));
  }
  bool is_control(int32_t id) const override {
    check_id(id);
    return id == kEndOfText;
  }
  int64_t max_bytes_of_id() const override { return std::ssize(std::string_view(kEndOfTextName)); }
  void append_bytes(int32_t id, std::string& out) const override {
    if (!is_control(id)) out.push_back(static_cast<char>(id));
  }

 protected:
  std::vector<int32_t> encode_text(std::string_view text,
                                   const EncodeOptions& options) const override {
    std::vector<int32_t> ids;
    split_at_controls(text, options.parse_special ? controls_ : no_controls(), options.breaks, ids,
                      [&](std::string_view part) {
                        for (const char byte : part) ids.push_back(static_cast<uint8_t>(byte));
                      });
    return ids;
  }

 private:
  static constexpr int32_t kEndOfText = 256;
  static constexpr const char* kEndOfTextName = "<|endoftext|>";
  Trie controls_{{{kEndOfTextName, kEndOfText}}};
};

}  // namespace

void Tokenizer::check_id(int32_t id) const {
  TRIREME_CHECK(id >= 0 && id < vocab_size(), "token ", id, " is outside the vocabulary of ",
                vocab_size(), " of tokenizer ", name());
}

void check_ids_fit(const Tokenizer& tokenizer, int64_t model_ids) {
  const int64_t ids = tokenizer.vocab_size();
  if (ids <= model_ids) return;
  fail_input("tokenizer ", tokenizer.name(), " has ", ids, " ids, the model only ", model_ids,
             " (vocab_size): it has no row for ", model_ids,
             ids == model_ids + 1 ? "" : concat(" to ", ids - 1),
             "; give the tokenizer that the model came with (--tokenizer, data.tokenizer)");
}

std::unique_ptr<Detokenizer> Tokenizer::detokenizer(bool /*at_start*/) const {
  return std::make_unique<ByteDetokenizer>(*this);
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool show_control) const {
  const std::unique_ptr<Detokenizer> detokenizer = this->detokenizer();
  DetokenizedText out;
  for (const int32_t id : ids) {
    detokenizer->push(id, show_control || !is_control(id), out);
    out.shares.clear();
  }
  detokenizer->finish(out);
  return std::move(out.text);
}

std::unique_ptr<Tokenizer> make_byte_tokenizer() { return std::make_unique<ByteTokenizer>(); }

std::string tokenizer_file(const std::string& spec) {
  if (spec.empty() || spec == "byte" || !std::filesystem::is_directory(spec)) return spec;
  for (const char* name : {"tokenizer.json", "tokenizer.model"})
    if (std::string file = (std::filesystem::path(spec) / name).string(); is_input_file(file))
      return file;
  return spec;
}

std::unique_ptr<Tokenizer> load_tokenizer(const std::string& spec) {
  if (spec == "byte") return make_byte_tokenizer();
  if (spec.ends_with(".model")) return load_sentencepiece(spec);
  if (spec.ends_with(".json")) return load_tokenizer_json(spec);
  if (spec.ends_with(".gguf")) return load_gguf_tokenizer(spec);
  if (const std::string file = tokenizer_file(spec); file != spec) return load_tokenizer(file);
  std::error_code ignored;
  if (std::filesystem::is_directory(spec, ignored))
    fail_input("tokenizer \"", spec, "\": the directory holds neither tokenizer.json nor ",
               "tokenizer.model; give \"byte\", or the path of one of these or of a .gguf");
  const bool there = std::filesystem::exists(spec, ignored);
  fail_input(
      "unknown tokenizer \"", spec, "\": give \"byte\", the path of a tokenizer.json or of a ",
      "SentencePiece model (a file ending in .model), a .gguf, or a directory that holds ",
      "one of the former", there ? "" : "; a model of a hub is downloaded first: hf download ",
      there          ? ""
      : spec.empty() ? "NAME"
                     : spec,
      there ? "" : " --local-dir DIR");
}

}  // namespace trireme
