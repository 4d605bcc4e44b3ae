// Tokenizers: text to token ids and back.
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
  bool add_special = false;    // tokens that the model expects around a text, usually bos
  bool parse_special = false;  // a special token spelled in the text ("</s>") is encoded as such
  // Ascending offsets into the text. A special token spelled in text[begin, end) is encoded as
  // text if an offset is in (begin, end] (engine/text/conversation.h).
  std::span<const size_t> breaks = {};
};

// Tokenizer, safe to share between threads.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  virtual std::string name() const = 0;    // "byte" or the path it was loaded from
  virtual int64_t vocab_size() const = 0;  // ids are [0, vocab_size)
  virtual int32_t bos_id() const = 0;      // -1: none
  virtual int32_t eod_id() const = 0;      // EOS: ends a document and a generation; -1: none
  // InputError for more than 1 GiB of text, except with "byte".
  std::vector<int32_t> encode(std::string_view text, const EncodeOptions& options = {}) const {
    return encode_text(text, options);
  }
  virtual bool is_control(int32_t id) const = 0;  // bos, eod, padding: no text of their own
  // Appends the bytes that `id` contributes after other tokens, possibly part of a UTF-8 character;
  // nothing for a control id.
  virtual void append_bytes(int32_t id, std::string& out) const = 0;
  // Returns a detokenizer of a sequence. at_start: no token with text precedes it, so that the
  // space that encoding added before the first word is dropped.
  virtual std::unique_ptr<Detokenizer> detokenizer(bool at_start = true) const;

  // Id of a token as spelled in the vocabulary; -1: none.
  virtual int32_t find(std::string_view token) const = 0;
  virtual std::string token(int32_t id) const = 0;

  // Returns the whole text as valid UTF-8; control ids are omitted, or spelled with show_control.
  std::string decode(std::span<const int32_t> ids, bool show_control = false) const;

  // Maximum number m of bytes of text per id: encode() returns at least bytes / m ids. 0: no bound
  // is known, for example if white space is dropped or a run of unknown characters is one id.
  virtual int64_t max_bytes_of_id() const { return 0; }

 protected:
  void check_id(int32_t id) const;
  virtual std::vector<int32_t> encode_text(std::string_view text,
                                           const EncodeOptions& options) const = 0;
};

// Throws InputError if a model whose embedding has `model_ids` rows lacks some of the tokenizer's
// ids. The reverse, a padded embedding, is usual: ids beyond the tokenizer's are never sampled.
void check_ids_fit(const Tokenizer& tokenizer, int64_t model_ids);

// "byte": the 256 bytes as ids 0..255 and <|endoftext|> = 256 (bos and eod); vocab_size 257. Else
// the path of a HuggingFace tokenizer.json, of a SentencePiece model, whose name must end in
// ".model", of a .gguf file, or of a directory with a tokenizer.json or else a tokenizer.model.
// InputError with the accepted forms for anything else.
std::unique_ptr<Tokenizer> load_tokenizer(const std::string& spec);

// Returns the file that load_tokenizer() reads: for a directory, its tokenizer.json or else its
// tokenizer.model; otherwise, or if it has neither, `spec` itself.
std::string tokenizer_file(const std::string& spec);

std::unique_ptr<Tokenizer> make_byte_tokenizer();

}  // namespace trireme
