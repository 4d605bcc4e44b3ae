// Evaluation tasks of `trireme eval --task`: multiple-choice questions and texts, scored as in
// lm-evaluation-harness.
//
// A task file has one JSON object per line:
//   {"context": ..., "choices": ["...", ...], "label": 1}
//       question; label: the number of the right choice, from 0, or the choice itself
//   {"text": ...}
//
// Questions. The continuation of a context is a delimiter (by default a space) and a choice. White
// space at the end of the context is moved to the continuation. Both are tokenized together, and
// the tokens after those of the context alone are the continuation's. Its log-likelihood is ln
// p(continuation | context). An empty context is replaced by the BOS token (the end-of-document
// token if there is no BOS); with add_bos every context starts with that token, as Gemma's models
// require. Long contexts are truncated at the start: context and continuation together have at most
// sequence_length + 1 tokens.
//   acc        fraction of questions whose right choice has the largest log-likelihood
//   acc_norm   the same, with log-likelihoods divided by the length of the choice in characters,
//              without the delimiter
//   acc_bytes  the same, with lengths in bytes
// These have a standard error, s / sqrt(n), where s is the sample's standard deviation.
//
// Questions with a chat template (the harness's --apply_chat_template). The context is rendered as
// a user message, followed by the template's generation prompt, and the choice follows without a
// delimiter. White space at the end of the rendered text is moved to the continuation too. Special
// tokens of the template are parsed; those spelled in a message or a choice are plain text.
// "context" may then also be a list of messages: a system message, and earlier turns as examples.
//
// Texts. A text is evaluated in windows of sequence_length predictions. The first window starts
// with the BOS token, each later one with one token of the window before it; the last one starts
// early enough to be full. Chat templates do not apply. With ll the log-likelihood of a text:
//   word_perplexity  exp(-sum ll / sum words), words as counted by Python's re.split(r"\s+")
//   byte_perplexity  exp(-sum ll / sum bytes)
//   bits_per_byte    -sum ll / sum bytes / ln 2
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
  const ConversationWriter* chat = nullptr;  // chat template; null: none
};

struct TaskMetric {
  std::string name;
  double value = 0;
  std::optional<double> standard_error;
};

class EvalTask {
 public:
  // Reads the file. InputError, with file and line, if a record is neither a question nor a text.
  // tokenizer: must outlive this object.
  EvalTask(const std::string& file, const Tokenizer& tokenizer, const EvalTaskOptions& options);
  // Documents to evaluate. metrics() and samples() need the log-likelihood of each document's
  // trained tokens, in this order.
  const std::vector<Example>& documents() const { return documents_; }
  int64_t questions() const { return static_cast<int64_t>(questions_.size()); }
  int64_t texts() const { return static_cast<int64_t>(texts_.size()); }
  int64_t truncated() const { return truncated_; }  // choices whose contexts were truncated
  int64_t longest() const;                          // predictions of the longest document
  // One warning for each member of messages that the chat template does not read, with the file and
  // line of its first record.
  std::vector<std::string> warnings() const;
  std::vector<TaskMetric> metrics(const std::vector<double>& log_likelihoods) const;
  // One JSON object per record, on a line: {"log_likelihoods": [...], "label": 1} for a question,
  // {"log_likelihood": ..., "words": ..., "bytes": ...} for a text. The questions come first.
  std::string samples(const std::vector<double>& log_likelihoods) const;

 private:
  struct Question {
    size_t first = 0;  // document of the first choice
    std::vector<double> characters, bytes;
    size_t label = 0;
  };
  struct Text {
    size_t first = 0, last = 0;  // its documents, [first, last)
    double words = 0, bytes = 0;
  };
  void add(const std::string& line, const std::string& place, const EvalTaskOptions& options);
  void add_continuation(WrittenConversation context, const std::string& choice,
                        const EvalTaskOptions& options);
  void add_text(const std::string& text, int64_t window);
  int32_t beginning() const;
  const Tokenizer& tokenizer_;
  Trie specials_;                                      // markup of the chat template
  std::map<std::string, std::string> unread_members_;  // name -> file and line of its first record
  std::vector<Example> documents_;
  std::vector<Question> questions_;
  std::vector<Text> texts_;
  int64_t truncated_ = 0;
};

}  // namespace trireme
