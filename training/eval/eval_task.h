// Tasks of `trireme eval --task`: questions with choices, and texts, scored as
// lm-evaluation-harness does.
//
// One JSON object a line:
//   {"context": ..., "choices": ["...", ...], "label": 1}   label: a number from 0, or the choice itself
//   {"text": ...}
// A choice stands behind the context and a delimiter, a space unless told. Spaces at the end of the
// context belong to the continuation; context and continuation are tokenised together, and what is
// more than the context's own tokens is the continuation. Its log-likelihood is ln p(continuation |
// context), of the tokens that fit: without a context behind the beginning-of-text token, and of a
// long one the last sequence_length + 1 tokens.
//   acc        share of questions whose choice of the largest log-likelihood is the right one
//   acc_norm   the same, log-likelihoods divided by the choices' lengths in characters, without delimiter
//   acc_bytes  the same, in bytes
// With add_bos every context begins with the beginning-of-text token, as Gemma's models need it.
//
// With a chat template (the harness's --apply_chat_template) the template writes the context as a
// user's message, up to where the answer begins, and the choice follows without a delimiter; white
// space that the template ends with belongs to the continuation as other white space does. The
// template's markup is parsed; what a message or a choice spells of it is text. "context" may then
// be a list of messages too: a system's, earlier turns as examples. Texts are read as they are.
//
// Each with its standard error, s / sqrt(n) with s the sample's standard deviation. Of texts
//   word_perplexity  exp(-sum ll / sum words), words as re.split(r"\s+") counts them
//   byte_perplexity  exp(-sum ll / sum bytes)
//   bits_per_byte    -sum ll / sum bytes / ln 2
// A long text is read in windows of sequence_length predictions, each behind one token of the
// window before; the last window reaches back so far that it is full.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/text/conversation.h"
#include "training/data/examples/example.h"

namespace trireme {

struct EvalTaskOptions {
  int64_t sequence_length = 0;
  std::string delimiter = " ";
  bool add_bos = false;
  const ConversationWriter* chat = nullptr;  // absent: contexts stand as they are
};

struct TaskMetric {
  std::string name;
  double value = 0;
  std::optional<double> standard_error;
};

class EvalTask {
 public:
  // InputError with file and line of a record that is neither.
  EvalTask(const std::string& file, const Tokenizer& tokenizer, const EvalTaskOptions& options);
  // What is to be computed: the log-likelihood of each document's learned tokens.
  const std::vector<Example>& documents() const { return documents_; }
  int64_t questions() const { return static_cast<int64_t>(questions_.size()); }
  int64_t texts() const { return static_cast<int64_t>(texts_.size()); }
  int64_t truncated() const { return truncated_; }  // choices whose contexts lost their beginnings
  int64_t longest() const;                          // predictions of the longest document
  // A line for each member of messages that the chat template does not read, with its first record.
  std::vector<std::string> warnings() const;
  // From the log-likelihoods of the documents.
  std::vector<TaskMetric> metrics(const std::vector<double>& log_likelihoods) const;
  // One JSON object a line for each record: {"log_likelihoods": [...], "label": 1}, of a text
  // {"log_likelihood": ..., "words": ..., "bytes": ...}
  std::string samples(const std::vector<double>& log_likelihoods) const;

 private:
  struct Question {
    size_t first = 0;  // document of the first choice
    std::vector<double> characters, bytes;
    size_t label = 0;
  };
  struct Text {
    size_t first = 0, last = 0;  // documents
    double words = 0, bytes = 0;
  };
  void add(const std::string& line, const std::string& place, const EvalTaskOptions& options);
  void add_continuation(WrittenConversation context, const std::string& choice,
                        const EvalTaskOptions& options);
  void add_text(const std::string& text, int64_t window);
  int32_t beginning() const;
  const Tokenizer& tokenizer_;
  Trie specials_;                                      // of the chat template's markup
  std::map<std::string, std::string> unread_members_;  // places of the first
  std::vector<Example> documents_;
  std::vector<Question> questions_;
  std::vector<Text> texts_;
  int64_t truncated_ = 0;
};

}  // namespace trireme
