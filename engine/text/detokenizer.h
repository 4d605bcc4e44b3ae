// Incremental detokenization: text of tokens that are sampled one at a time.
//
// The pieces concatenate to the decoding of the whole sequence, and no piece is revised: bytes of
// an unfinished character stay pending, and so does a run of byte tokens if the tokenizer decodes
// the run as a whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace trireme {

class Tokenizer;

// Text that is final after a token.
struct DetokenizedText {
  std::string text = {};  // valid UTF-8
  // Bytes of `text` per token, in the order of push(). The share of a token of a pending run is
  // appended by a later call.
  std::vector<size_t> shares = {};
};

// Detokenizer of one text. Not safe to share between threads; the tokenizer must outlive it.
class Detokenizer {
 public:
  virtual ~Detokenizer() = default;
  // Adds the next token and appends to `out`. shown: its text is output; that of a control token is
  // its spelling.
  virtual void push(int32_t id, bool shown, DetokenizedText& out) = 0;
  // Ends the text: appends the rest and the missing shares. Text beyond the shares belongs to the
  // last token.
  virtual void finish(DetokenizedText& out) = 0;
  // Returns whether finish() may append text beyond the shares.
  virtual bool has_partial() const = 0;
};

// Detokenizer of tokens that are bytes; each maximal subpart of invalid UTF-8 becomes one U+FFFD.
class ByteDetokenizer final : public Detokenizer {
 public:
  explicit ByteDetokenizer(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}
  void push(int32_t id, bool shown, DetokenizedText& out) override;
  void finish(DetokenizedText& out) override;
  bool has_partial() const override { return !pending_.empty(); }

 private:
  const Tokenizer& tokenizer_;
  std::string pending_;  // bytes of an unfinished character
};

}  // namespace trireme
