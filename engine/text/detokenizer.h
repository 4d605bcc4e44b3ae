// Incremental detokenization: text of tokens that arrive one by one.
//
// The pieces together are what decoding the whole sequence at once gives, and no piece is taken
// back: bytes of an unfinished character are held back, and so is a run of byte tokens where the
// tokenizer decides over the whole run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace trireme {

class Tokenizer;

// What is certain after a token.
struct DetokenizedText {
  std::string text = {};  // valid UTF-8
  // Bytes of `text` of each token, in the order of push(). A token of an undecided run gets its
  // share with a later one.
  std::vector<size_t> shares = {};
};

// One text. Not shared between threads; the tokenizer must outlive it.
class Detokenizer {
 public:
  virtual ~Detokenizer() = default;
  // The next token; appends to `out`. shown: it has text, which of a control token is its
  // spelling.
  virtual void push(int32_t id, bool shown, DetokenizedText& out) = 0;
  // No further token: appends the rest and the shares that are left out so far. Text beyond the
  // shares belongs to the last token.
  virtual void finish(DetokenizedText& out) = 0;
  // finish() may append text beyond the shares.
  virtual bool has_partial() const = 0;
};

// Text of tokens that are bytes; invalid UTF-8 is repaired by maximal parts.
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
