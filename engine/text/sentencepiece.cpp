#include "engine/text/sentencepiece.h"

#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <exception>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>

#include "engine/core/tensor.h"
#include "engine/core/utf8.h"
#include "engine/io/atomic_file.h"
#include "engine/text/sentencepiece_proto.h"
#include "engine/text/sentencepiece_words.h"
#include "engine/text/tokenizer_config.h"
#include "engine/text/unicode.h"
#include "engine/text/vocabulary.h"

namespace trireme {
namespace {

constexpr std::string_view kSpaceSymbol = "\xE2\x96\x81";  // U+2581, a space in pieces
constexpr int64_t kMaxModelBytes = 256 << 20;
// The library uses 32-bit sizes and needs many times the text's bytes.
constexpr size_t kMaxSentencePieceBytes = size_t{1} << 30;
// Longer texts are encoded in parts of about this size if the model permits it.
constexpr size_t kPieceBytes = 64 << 10;

std::string replace_all(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  for (;;) {
    const size_t at = text.find(from);
    out.append(text.substr(0, at));
    if (at == std::string_view::npos) return out;
    out.append(to);
    text.remove_prefix(at + from.size());
  }
}

// The library prefixes the reason with its source line and condition in brackets.
std::string reason(const sentencepiece::util::Status& status) {
  const std::string message = status.message();
  const size_t bracket = message.rfind("] ");
  return bracket == std::string::npos ? message : message.substr(bracket + 2);
}

// The library's encoder of one model, with faster paths to equal ids.
class PieceEncoder {
 public:
  PieceEncoder(std::string_view model, const std::string& name) {
    const SentencePieceFacts facts = check_sentencepiece_model(model, name);
    const auto status = processor_.LoadFromSerializedProto(model);
    if (!status.ok()) {
      fail_input("cannot load tokenizer ", name,
                 ": it is not a SentencePiece model, or is damaged (", reason(status), ")");
    }
    if (processor_.GetPieceSize() < 1) fail_input("tokenizer ", name, " has an empty vocabulary");
    words_ = SentencePieceWords::make(parse_sentence_pieces(model, name), name);
    newline_ = encode_piece("\n");
    splits_at_newline_ = facts.keeps_text && !newline_.empty() && newline_stands_alone();
  }

  const sentencepiece::SentencePieceProcessor& processor() const { return processor_; }

  void encode(std::string_view part, std::vector<int32_t>& ids) const {
    if (words_ != nullptr && find_invalid_utf8(part) == part.size())
      return words_->encode(part, ids);
    const auto found = splits_at_newline_ && part.size() > kPieceBytes ? encode_in_pieces(part)
                                                                       : encode_piece(part);
    ids.insert(ids.end(), found.begin(), found.end());
  }

 private:
  std::vector<int32_t> encode_piece(std::string_view text) const {
    std::vector<int> ids;
    const auto status = processor_.Encode(text, &ids);
    TRIREME_CHECK(status.ok(), "SentencePiece: ", status.message());
    return ids;
  }

  // Whether no piece joins a line end to other characters, so that tokens never cross one.
  bool newline_stands_alone() const {
    for (int id = 0; id < processor_.GetPieceSize(); ++id) {
      const std::string& piece = processor_.IdToPiece(id);
      if (piece.size() > 1 && piece.find('\n') != std::string::npos) return false;
    }
    return true;
  }

  // Ids of encode_piece(text), with memory and time linear in the text: each part after the first
  // starts with the preceding line end, whose ids (and those of the space that the library
  // prepends) are then dropped.
  std::vector<int32_t> encode_in_pieces(std::string_view text) const {
    std::vector<int32_t> ids;
    for (size_t begin = 0; begin < text.size();) {
      const size_t newline = text.find('\n', begin + kPieceBytes);
      const size_t end = newline == std::string_view::npos ? text.size() : newline + 1;
      const size_t before = begin > 0 ? 1 : 0;
      const auto piece = encode_piece(text.substr(begin - before, end - begin + before));
      ids.insert(ids.end(), piece.begin() + static_cast<int64_t>(before * newline_.size()),
                 piece.end());
      begin = end;
    }
    return ids;
  }

  sentencepiece::SentencePieceProcessor processor_;
  std::unique_ptr<SentencePieceWords> words_;  // set if it gives the library's ids
  std::vector<int32_t> newline_;               // ids of a text that is one line end
  bool splits_at_newline_ = false;
};

class SentencePieceTokenizer : public Tokenizer {
 public:
  // `model`: with the leading space of the settings.
  SentencePieceTokenizer(std::string_view model, std::string name,
                         const SentencePieceSettings& settings)
      : name_(std::move(name)),
        encoder_(model, name_),
        processor_(encoder_.processor()),
        adds_bos_(settings.adds_bos),
        adds_eos_(settings.adds_eos) {
    const SentencePieceFacts facts = check_sentencepiece_model(model, name_);
    if (settings.leading_space_once && parse_sentence_pieces(model, name_).adds_leading_space)
      inner_ = std::make_unique<PieceEncoder>(with_leading_space(model, false), name_);
    drops_leading_space_ = facts.drops_leading_space;
    drops_leading_spaces_ = facts.drops_leading_spaces;
    make_tokens(settings);
    if (facts.keeps_text) find_max_bytes();
    bos_ = settings.bos.has_value() ? named(*settings.bos) : processor_.bos_id();
    eod_ = settings.eos.has_value() ? named(*settings.eos) : processor_.eos_id();
  }

  std::string name() const override { return name_; }
  int64_t vocab_size() const override { return std::ssize(tokens_); }
  int32_t bos_id() const override { return bos_; }
  int32_t eod_id() const override { return eod_; }
  bool is_control(int32_t id) const override {
    check_id(id);
    return tokens_[static_cast<size_t>(id)].control;
  }

  int32_t find(std::string_view token) const override {
    const auto added = ids_.find(token);
    if (added != ids_.end()) return added->second;
    const int id = processor_.PieceToId(token);
    return processor_.IdToPiece(id) == token ? id : -1;
  }
  std::string token(int32_t id) const override {
    check_id(id);
    return tokens_[static_cast<size_t>(id)].text;
  }

  int64_t max_bytes_of_id() const override { return max_bytes_; }

  void append_bytes(int32_t id, std::string& out) const override {
    check_id(id);
    out.append(tokens_[static_cast<size_t>(id)].bytes);
  }
  std::unique_ptr<Detokenizer> detokenizer(bool at_start) const override {
    return std::make_unique<PieceDetokenizer>(*this, at_start);
  }

 protected:
  // Models of this kind are trained with bos before a text, if they have one.
  std::vector<int32_t> encode_text(std::string_view text,
                                   const EncodeOptions& options) const override {
    if (text.size() > kMaxSentencePieceBytes) {
      fail_input("a text of ", text.size(), " bytes is too long for tokenizer ", name_,
                 "; split it into documents of at most ", kMaxSentencePieceBytes, " bytes");
    }
    std::vector<int32_t> ids;
    if (options.add_special && adds_bos_ && bos_ >= 0) ids.push_back(bos_);
    added_.split(
        text, false, options.parse_special, options.breaks, [&](int32_t id) { ids.push_back(id); },
        [&](std::string_view part) {
          const bool first = part.data() == text.data();
          (first || inner_ == nullptr ? encoder_ : *inner_).encode(part, ids);
        });
    if (options.add_special && adds_eos_ && eod_ >= 0) ids.push_back(eod_);
    return ids;
  }

 private:
  struct Token {
    std::string text = {}, bytes = {};
    bool control = false;
    bool byte = false;         // a byte token
    bool begins_word = false;  // the bytes start with a space from U+2581
  };

  // Like the library's Decode: each byte of a run of byte tokens that is part of no character
  // becomes U+FFFD, and at the start of a text the space before a word is dropped.
  class PieceDetokenizer final : public Detokenizer {
   public:
    PieceDetokenizer(const SentencePieceTokenizer& tokenizer, bool at_start)
        : tokenizer_(tokenizer), at_start_(at_start && tokenizer.drops_leading_space_) {}
    void push(int32_t id, bool shown, DetokenizedText& out) override {
      tokenizer_.check_id(id);
      const Token& token = tokenizer_.tokens_[static_cast<size_t>(id)];
      std::string text;
      if (shown && token.byte) {
        pending_ += token.bytes;
        text = take_complete_utf8(pending_);
        at_start_ = false;
      } else {
        text = repaired_utf8(std::exchange(pending_, {}), Utf8Repair::kEachByte);
        if (shown) append(token, text);
      }
      out.text += text;
      out.shares.push_back(text.size());
    }
    void finish(DetokenizedText& out) override {
      out.text += repaired_utf8(std::exchange(pending_, {}), Utf8Repair::kEachByte);
    }
    bool has_partial() const override { return !pending_.empty(); }

   private:
    void append(const Token& token, std::string& text) {
      const std::string_view bytes = token.control ? token.text : token.bytes;
      const bool dropped = at_start_ && token.begins_word;
      const size_t begin = dropped ? 1 : 0;
      text += bytes.substr(begin);
      if (bytes.size() > begin || (dropped && !tokenizer_.drops_leading_spaces_)) at_start_ = false;
    }
    const SentencePieceTokenizer& tokenizer_;
    bool at_start_;
    std::string pending_;  // bytes of an unfinished character
  };

  void make_tokens(const SentencePieceSettings& settings) {
    const int pieces = processor_.GetPieceSize();
    tokens_.reserve(static_cast<size_t>(pieces));
    for (int id = 0; id < pieces; ++id) tokens_.push_back(token_of(id));
    std::vector<AddedToken> sought;
    const auto add = [&](AddedToken t) {
      t.normalized = false;  // added tokens match the original text, not the model's normalization
      if (t.id >= std::ssize(tokens_)) tokens_.resize(static_cast<size_t>(t.id) + 1);
      tokens_[static_cast<size_t>(t.id)] = {
          .text = t.content, .bytes = t.special ? "" : t.content, .control = t.special};
      ids_.insert_or_assign(t.content, t.id);
      sought.push_back(std::move(t));
    };
    for (const AddedToken& t : settings.added) add(t);
    for (AddedToken t : settings.named) {
      t.id = find(t.content);
      const bool there = t.id >= pieces ||
                         (t.id >= 0 && (processor_.IsControl(t.id) || processor_.IsUnknown(t.id)));
      if (there || ids_.contains(t.content)) continue;
      if (t.id < 0 && (settings.bos == t.content || settings.eos == t.content)) continue;
      if (t.id < 0) t.id = static_cast<int32_t>(tokens_.size());
      add(std::move(t));
    }
    for (size_t id = static_cast<size_t>(pieces); id < tokens_.size(); ++id)
      if (tokens_[id].text.empty())
        fail_input("tokenizer ", name_, ": the model has ", pieces,
                   " tokens, and the files next to ",
                   "it add tokens after them, but not one with the id ", id,
                   "; added_tokens.json or tokenizer_config.json lacks it");
    for (int id = 0; id < pieces; ++id)
      if (processor_.IsControl(id) && !ids_.contains(processor_.IdToPiece(id)))
        sought.push_back({.id = id, .content = processor_.IdToPiece(id), .special = true});
    added_ = AddedTokens(std::move(sought), Normalizer(nlohmann::json(), name_));
  }

  // Characters without a piece become bytes, if the model has byte pieces.
  void find_max_bytes() {
    int64_t most = added_.longest();
    bool has_bytes = false;
    for (int id = 0; id < processor_.GetPieceSize(); ++id) {
      has_bytes = has_bytes || processor_.IsByte(id);
      if (most >= 0) most = std::max(most, std::ssize(processor_.IdToPiece(id)));
    }
    if (has_bytes && most > 0) max_bytes_ = most;
  }

  int32_t named(const std::string& token) const {
    const int32_t id = token.empty() ? -1 : find(token);
    if (id < 0 && !token.empty())
      fail_input(
          name_, ": the token \"", token,
          "\" that tokenizer_config.json names as bos_token or eos_token is not in the vocabulary");
    return id;
  }

  Token token_of(int id) const {
    const std::string& piece = processor_.IdToPiece(id);
    Token token{.text = piece, .control = processor_.IsControl(id), .byte = processor_.IsByte(id)};
    if (processor_.IsUnknown(id)) {
      token.bytes = processor_.DecodeIds({id});
    } else if (token.byte) {  // "<0x0A>"
      token.bytes.push_back(static_cast<char>(std::stoi(piece.substr(1, 4), nullptr, 16)));
    } else if (!token.control) {
      token.bytes = replace_all(valid_utf8(piece), kSpaceSymbol, " ");
      token.begins_word = piece.starts_with(kSpaceSymbol);
    }
    return token;
  }

  std::string name_;
  PieceEncoder encoder_;
  std::unique_ptr<PieceEncoder> inner_;  // for text after an added token, if it differs
  const sentencepiece::SentencePieceProcessor& processor_;
  bool adds_bos_, adds_eos_;
  bool drops_leading_space_ = true, drops_leading_spaces_ = false;
  std::vector<Token> tokens_;
  AddedTokens added_;  // including the model's control tokens
  std::unordered_map<std::string, int32_t, StringHash, std::equal_to<>> ids_;  // of added tokens
  int32_t bos_ = -1, eod_ = -1;
  int64_t max_bytes_ = 0;
};

// The library pulls sentences; an exception is stored until the library has returned.
class Sentences : public sentencepiece::SentenceIterator {
 public:
  explicit Sentences(const std::function<bool(std::string&)>& next) : next_(next) { Next(); }
  bool done() const override { return done_; }
  void Next() override {
    try {
      done_ = !next_(sentence_);
    } catch (...) {
      failure_ = std::current_exception();
      done_ = true;
    }
  }
  const std::string& value() const override { return sentence_; }
  sentencepiece::util::Status status() const override { return {}; }
  void rethrow() const {
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  const std::function<bool(std::string&)>& next_;
  std::string sentence_;
  bool done_ = false;
  std::exception_ptr failure_;
};

}  // namespace

std::unique_ptr<Tokenizer> parse_sentencepiece(std::string_view model, const std::string& name,
                                               const SentencePieceSettings& settings) {
  if (!settings.adds_leading_space.has_value() ||
      *settings.adds_leading_space == parse_sentence_pieces(model, name).adds_leading_space)
    return std::make_unique<SentencePieceTokenizer>(model, name, settings);
  return std::make_unique<SentencePieceTokenizer>(
      with_leading_space(model, *settings.adds_leading_space), name, settings);
}

SentencePieceSettings sentencepiece_settings(const TokenizerConfig& config) {
  SentencePieceSettings out{.added = config.added,
                            .adds_bos = config.adds_bos.value_or(true),
                            .adds_eos = config.adds_eos.value_or(false),
                            .named = config.named,
                            .adds_leading_space = config.adds_prefix_space,
                            .leading_space_once = !config.legacy.value_or(true)};
  if (const auto bos = config.roles.find("bos_token"); bos != config.roles.end())
    out.bos = bos->second.value_or("");
  if (const auto eos = config.roles.find("eos_token"); eos != config.roles.end())
    out.eos = eos->second.value_or("");
  return out;
}

std::unique_ptr<Tokenizer> load_sentencepiece(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  const std::string model = read_small_file(path, kMaxModelBytes);
  const TokenizerConfig config =
      parse_tokenizer_config(tokenizer_config_beside(folder),
                             (std::filesystem::path(folder) / "tokenizer_config.json").string());
  if (config.cleans_up_spaces && !parse_sentence_pieces(model, path).pairs)
    fail_input(path, ": clean_up_tokenization_spaces of tokenizer_config.json, which drops spaces ",
               "from decoded text, is not supported for a Unigram model; set it to false");
  return parse_sentencepiece(model, path, sentencepiece_settings(config));
}

std::string train_sentencepiece(const SentencePieceTraining& options,
                                const std::function<bool(std::string& sentence)>& next) {
  if (options.model_type != "bpe" && options.model_type != "unigram") {
    fail_input("tokenizer model type \"", options.model_type,
               "\" is not supported; supported: bpe, unigram");
  }
  constexpr int64_t kReserved = 3 + 256;  // <unk>, <s>, </s> and the bytes
  if (options.vocab_size <= kReserved || options.vocab_size > (1 << 24)) {
    fail_input("a vocabulary of ", options.vocab_size, " tokens is not possible: give more than ",
               kReserved, " (3 control ids and 256 bytes) and at most ", 1 << 24);
  }
  const std::unordered_map<std::string, std::string> arguments = {
      {"model_type", options.model_type},
      {"vocab_size", std::to_string(options.vocab_size)},
      {"normalization_rule_name", "identity"},
      {"remove_extra_whitespaces", "false"},
      {"allow_whitespace_only_pieces", "true"},
      {"split_digits", "true"},
      {"byte_fallback", "true"},
      {"character_coverage", "0.99995"},
      {"max_sentence_length", std::to_string(1 << 20)},
      // The unigram trainer sums per thread, so the number of threads affects the result.
      {"num_threads", "8"},
      {"minloglevel", "2"},
  };
  Sentences sentences(next);
  sentences.rethrow();
  if (sentences.done()) fail_input("there is no text to train a tokenizer on");
  std::string model;
  const auto status = sentencepiece::SentencePieceTrainer::Train(arguments, &sentences, &model);
  sentences.rethrow();
  if (!status.ok()) {
    fail_input("cannot train a tokenizer with a vocabulary of ", options.vocab_size, ": ",
               reason(status));
  }
  return model;
}

}  // namespace trireme
