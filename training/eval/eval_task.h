// Tasks of `trireme eval --task`: questions with choices, and texts, scored as in
// lm-evaluation-harness.
//
// One JSON object per line:
//   {"context": ..., "choices": ["...", ...], "label": 1}
//       label: a number from 0, or the choice itself
//   {"text": ...}
// A choice follows the context and a delimiter, a space by default. Spaces at the end of the
// context belong to the continuation. Context and continuation are tokenised together; the tokens
// after the context's own are the continuation. Its log-likelihood is ln p(continuation | context),
// over the tokens that fit: without a context, after the beginning-of-text token; with a long one,
// over the last sequence_length + 1 tokens.
//   acc        share of questions whose choice with the largest log-likelihood is the right one
//   acc_norm   the same, with log-likelihoods divided by the choices' lengths in characters,
//              without the delimiter
//   acc_bytes  the same, in bytes
// With add_bos every context begins with the beginning-of-text token, as Gemma's models require.
//
// With a chat template (the harness's --apply_chat_template) the template writes the context as a
// user message, up to the start of the response, and the choice follows without a delimiter. White
// space at the end of the template's text belongs to the continuation, like other white space. The
// template's markup is parsed; markup spelled in a message or a choice is text. "context" may then
// also be a list of messages: a system message, and earlier turns as examples. Texts are used
// without a template.
//
// Each metric has its standard error, s / sqrt(n) with s the sample's standard deviation. For
// texts:
//   word_perplexity  exp(-sum ll / sum words), words as re.split(r"\s+") counts them
//   byte_perplexity  exp(-sum ll / sum bytes)
//   bits_per_byte    -sum ll / sum bytes / ln 2
// A long text is evaluated in windows of sequence_length predictions, each after one token of the
// previous window; the last window starts early enough to be full.
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
  const ConversationWriter* chat = nullptr;  // null: contexts are used as they are
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
  // Documents to evaluate: the log-likelihood of each one's trained tokens.
  const std::vector<Example>& documents() const { return documents_; }
  int64_t questions() const { return static_cast<int64_t>(questions_.size()); }
  int64_t texts() const { return static_cast<int64_t>(texts_.size()); }
  int64_t truncated() const { return truncated_; }  // choices whose contexts were cut at the start
  int64_t longest() const;                          // predictions of the longest document
  // One line per member of messages that the chat template does not read, with its first record.
  std::vector<std::string> warnings() const;
  // Metrics from the log-likelihoods of the documents.
  std::vector<TaskMetric> metrics(const std::vector<double>& log_likelihoods) const;
  // One JSON object per line and record: {"log_likelihoods": [...], "label": 1}, or for a text
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
  Trie specials_;                                      // markup of the chat template
  std::map<std::string, std::string> unread_members_;  // name -> its first record
  std::vector<Example> documents_;
  std::vector<Question> questions_;
  std::vector<Text> texts_;
  int64_t truncated_ = 0;
};

}  // namespace trireme
