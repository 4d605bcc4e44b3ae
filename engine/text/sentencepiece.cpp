#include "engine/text/sentencepiece.h"

#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <exception>

#include "engine/core/error.h"
#include "engine/core/tensor.h"
#include "engine/io/atomic_file.h"
#include "engine/text/control_split.h"
#include "engine/text/sentencepiece_proto.h"

namespace trireme {
namespace {

constexpr std::string_view kSpaceSymbol = "\xE2\x96\x81";  // U+2581 stands for a space in pieces
constexpr int64_t kMaxModelBytes = 256 << 20;
// The library works on 32-bit sizes and needs many times the text's bytes.
constexpr size_t kMaxTextBytes = size_t{1} << 30;
// Longer texts are encoded in pieces of about this size where the model allows it.
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

// The library puts its own source line and condition in brackets before the reason.
std::string reason(const sentencepiece::util::Status& status) {
  const std::string message = status.message();
  const size_t bracket = message.rfind("] ");
  return bracket == std::string::npos ? message : message.substr(bracket + 2);
}

class SentencePieceTokenizer : public Tokenizer {
 public:
  SentencePieceTokenizer(std::string_view model, std::string name) : name_(std::move(name)) {
    const SentencePieceFacts facts = check_sentencepiece_model(model, name_);
    const auto status = processor_.LoadFromSerializedProto(model);
    if (!status.ok()) {
      fail_input("cannot load tokenizer ", name_, ": it is no SentencePiece model, or damaged (",
                 reason(status), ")");
    }
    if (processor_.GetPieceSize() < 1) fail_input("tokenizer ", name_, " has an empty vocabulary");
    drops_leading_space_ = facts.drops_leading_space;
    bytes_.reserve(static_cast<size_t>(processor_.GetPieceSize()));
    for (int id = 0; id < processor_.GetPieceSize(); ++id) bytes_.push_back(bytes_of(id));
    std::vector<std::pair<std::string, int32_t>> controls;
    for (int id = 0; id < processor_.GetPieceSize(); ++id)
      if (processor_.IsControl(id)) controls.emplace_back(processor_.IdToPiece(id), id);
    controls_ = Trie(std::move(controls));
    newline_ = encode_piece("\n");
    splits_at_newline_ = facts.keeps_text && !newline_.empty() && newline_stands_alone();
  }

  std::string name() const override { return name_; }
  int64_t vocab_size() const override { return processor_.GetPieceSize(); }
  int32_t bos_id() const override { return processor_.bos_id(); }
  int32_t eod_id() const override { return processor_.eos_id(); }
  bool is_control(int32_t id) const override {
    check_id(id);
    return processor_.IsControl(id);
  }

  int32_t find(std::string_view token) const override {
    const int id = processor_.PieceToId(token);
    return processor_.IdToPiece(id) == token ? id : -1;
  }
  std::string token(int32_t id) const override {
    check_id(id);
    return processor_.IdToPiece(id);
  }

  void append_bytes(int32_t id, bool at_start, std::string& out) const override {
    check_id(id);
    std::string_view bytes = bytes_[static_cast<size_t>(id)];
    if (at_start && drops_leading_space_ && bytes.starts_with(' ')) bytes.remove_prefix(1);
    out.append(bytes);
  }

 protected:
  // bos before a text, where the model has one, is what models of this kind are trained with.
  std::vector<int32_t> encode_text(std::string_view text,
                                   const EncodeOptions& options) const override {
    if (text.size() > kMaxTextBytes) {
      fail_input("a text of ", text.size(), " bytes is too long for tokenizer ", name_,
                 "; split it into documents of at most ", kMaxTextBytes, " bytes");
    }
    std::vector<int32_t> ids;
    if (options.add_special && bos_id() >= 0) ids.push_back(bos_id());
    split_at_controls(text, options.parse_special ? controls_ : no_controls(), options.breaks, ids,
                      [&](std::string_view part) {
                        const auto found = splits_at_newline_ && part.size() > kPieceBytes
                                               ? encode_in_pieces(part)
                                               : encode_piece(part);
                        ids.insert(ids.end(), found.begin(), found.end());
                      });
    return ids;
  }

 private:
  std::vector<int32_t> encode_piece(std::string_view text) const {
    std::vector<int> ids;
    const auto status = processor_.Encode(text, &ids);
    TRIREME_CHECK(status.ok(), "SentencePiece: ", status.message());
    return ids;
  }

  // No piece joins a line end to anything, so tokens never reach across one.
  bool newline_stands_alone() const {
    for (int id = 0; id < processor_.GetPieceSize(); ++id) {
      const std::string& piece = processor_.IdToPiece(id);
      if (piece.size() > 1 && piece.find('\n') != std::string::npos) return false;
    }
    return true;
  }

  // The ids of encode_piece(text), in memory and time that grow with the text only linearly: each
  // piece after the first begins with the line end before it, whose ids (and those of the space the
  // library puts in front) are then dropped.
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

  std::string bytes_of(int id) const {
    if (processor_.IsControl(id)) return "";
    if (processor_.IsUnknown(id)) return processor_.DecodeIds({id});
    const std::string& piece = processor_.IdToPiece(id);
    if (processor_.IsByte(id)) {  // "<0x0A>"
      return std::string(1, static_cast<char>(std::stoi(piece.substr(1, 4), nullptr, 16)));
    }
    return replace_all(piece, kSpaceSymbol, " ");
  }

  std::string name_;
  sentencepiece::SentencePieceProcessor processor_;
  bool drops_leading_space_ = true;
  std::vector<std::string> bytes_;  // (vocabulary)
  std::vector<int32_t> newline_;    // ids of a text that is one line end
  bool splits_at_newline_ = false;
  Trie controls_;
};

// The library pulls sentences; what goes wrong meanwhile is kept until it has returned.
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

std::unique_ptr<Tokenizer> parse_sentencepiece(std::string_view model, const std::string& name) {
  return std::make_unique<SentencePieceTokenizer>(model, name);
}

std::unique_ptr<Tokenizer> load_sentencepiece(const std::string& path) {
  return parse_sentencepiece(read_small_file(path, kMaxModelBytes), path);
}

std::string train_sentencepiece(const SentencePieceTraining& options,
                                const std::function<bool(std::string& sentence)>& next) {
  if (options.model_type != "bpe" && options.model_type != "unigram") {
    fail_input("unknown tokenizer model type \"", options.model_type, "\": give bpe or unigram");
  }
  constexpr int64_t kReserved = 3 + 256;  // <unk>, <s>, </s> and the bytes
  if (options.vocab_size <= kReserved || options.vocab_size > (1 << 24)) {
    fail_input("a vocabulary of ", options.vocab_size, " is not possible: give more than ",
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
      // Partial sums of the unigram trainer are added per thread, so the number is part of the result.
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
