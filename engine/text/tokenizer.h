// Text to token ids and back.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/detokenizer.h"

namespace trireme {

struct EncodeOptions {
  bool add_special = false;    // what the model expects around a text: bos, as a rule
  bool parse_special = false;  // markup such as "</s>" in the text is that token, not text
  // Ascending offsets into the text: what spells a special token in [begin, end) with one of them
  // in (begin, end] is text all the same (engine/text/conversation.h).
  std::span<const size_t> breaks = {};
};

// Safe to share between threads.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  virtual std::string name() const = 0;    // "byte" or the path it was loaded from
  virtual int64_t vocab_size() const = 0;  // ids are [0, vocab_size)
  virtual int32_t bos_id() const = 0;      // -1: none
  virtual int32_t eod_id() const = 0;      // ends a document and a generation; -1: none
  std::vector<int32_t> encode(std::string_view text, const EncodeOptions& options = {}) const {
    return encode_text(text, options);
  }
  virtual bool is_control(int32_t id) const = 0;  // bos, eod, padding: no text of their own
  // Appends the bytes that `id` adds behind other tokens, which may be a part of a UTF-8 character;
  // nothing for a control id.
  virtual void append_bytes(int32_t id, std::string& out) const = 0;
  // Text of a sequence token by token. at_start: no token with text precedes it (a space that
  // encoding had put before the first word is dropped).
  virtual std::unique_ptr<Detokenizer> detokenizer(bool at_start = true) const;

  // The id of a token as it is spelled in the vocabulary; -1: there is none.
  virtual int32_t find(std::string_view token) const = 0;
  virtual std::string token(int32_t id) const = 0;

  // The whole text, valid UTF-8; control ids have none unless they are shown as they are spelled.
  std::string decode(std::span<const int32_t> ids, bool show_control = false) const;

  // Bytes of a text for which one id stands at most: encode() makes at least bytes / this many of
  // it. 0: no such bound is known, as where white space is dropped, or a row of unknown characters
  // is one id.
  virtual int64_t most_bytes_of_id() const { return 0; }

 protected:
  void check_id(int32_t id) const;
  virtual std::vector<int32_t> encode_text(std::string_view text,
                                           const EncodeOptions& options) const = 0;
};

// InputError where a model with a table of `model_ids` rows has none for some of the tokenizer's
// ids. The reverse, a padded table, is usual: the ids beyond the tokenizer's are never drawn.
void check_ids_fit(const Tokenizer& tokenizer, int64_t model_ids);

// "byte": the 256 bytes as ids 0..255 and <|endoftext|> = 256 (bos and eod); vocab_size 257.
// Else the path of a HuggingFace tokenizer.json, of a SentencePiece model, which must end in
// ".model", of a .gguf file, or of a directory that holds one of the former (tokenizer.json first,
// then tokenizer.model). InputError says what is accepted for anything else.
std::unique_ptr<Tokenizer> load_tokenizer(const std::string& spec);

// The file that it reads; `spec` itself where that is none.
std::string tokenizer_file(const std::string& spec);

std::unique_ptr<Tokenizer> make_byte_tokenizer();

}  // namespace trireme
