#include "training/eval/eval_task.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>
#include <utility>

#include "engine/core/error.h"
#include "engine/io/strict_json.h"
#include "engine/io/text_reader.h"

namespace trireme {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr size_t kMaxUnreadNames = 16;  // maximum number of stored names of unread members

int64_t characters(const std::string& text) {
  return std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0u) != 0x80u; });
}

// Bytes of the white-space character at a position, as matched by Python's \s; 0: none.
size_t white_space(std::string_view text, size_t at) {
  const auto c = static_cast<unsigned char>(text[at]);
  if (c == ' ' || (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x1F)) return 1;
  const std::string_view two = text.substr(at, 2), three = text.substr(at, 3);
  if (two == "\xC2\x85" || two == "\xC2\xA0") return 2;
  if (three == "\xE1\x9A\x80" || three == "\xE3\x80\x80" || three == "\xE2\x81\x9F") return 3;
  if (!three.starts_with("\xE2\x80") || three.size() < 3) return 0;
  const auto last = static_cast<unsigned char>(three[2]);
  return last <= 0x8A || last == 0xA8 || last == 0xA9 || last == 0xAF ? 3 : 0;
}

double words(std::string_view text) {
  double pieces = 1;
  bool inside = false;
  for (size_t at = 0; at < text.size();) {
    const size_t space = white_space(text, at);
    if (space > 0 && !inside) ++pieces;
    inside = space > 0;
    at += std::max<size_t>(1, space);
  }
  return pieces;
}

// Length of the text without the white space at its end, as by Python's rstrip().
size_t end_without_space(std::string_view text) {
  size_t end = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t space = white_space(text, at);
    at += std::max<size_t>(1, space);
    if (space == 0) end = at;
  }
  return end;
}

// Fraction of hits (each 0 or 1), and its standard error.
TaskMetric share(const char* name, const std::vector<double>& hits) {
  const auto n = static_cast<double>(hits.size());
  double mean = 0, squares = 0;
  for (const double hit : hits) mean += hit / n;
  for (const double hit : hits) squares += (hit - mean) * (hit - mean);
  TaskMetric metric{name, mean, {}};
  if (hits.size() > 1) metric.standard_error = std::sqrt(squares / (n - 1) / n);
  return metric;
}

size_t label_of(const OrderedJson& label, const std::vector<std::string>& choices) {
  if (label.is_number_integer() && label.get<int64_t>() >= 0 &&
      label.get<int64_t>() < std::ssize(choices))
    return label.get<size_t>();
  if (label.is_string())
    if (const auto at = std::ranges::find(choices, label.get<std::string>()); at != choices.end())
      return static_cast<size_t>(at - choices.begin());
  fail_input("\"label\" ", label.dump(), ": expected one of the choices, or its number from 0");
}

// Text that precedes the choices.
WrittenConversation context_of(const OrderedJson& context, const ConversationWriter* chat) {
  if (chat == nullptr) {
    if (!context.is_string())
      fail_input("\"context\": expected a string; a list of messages needs --apply-chat-template");
    return {{context.get<std::string>(), {}}, {}};
  }
  OrderedJson messages = context;
  if (context.is_string())
    messages = OrderedJson::array({text_message("user", context.get<std::string>())});
  check_messages(messages, "context");
  if (messages.empty() || is_assistant(messages.back()))
    fail_input(
        "\"context\": expected a last message that the choices reply to, got an assistant's "
        "message");
  return chat->write({{"messages", messages}, {"add_generation_prompt", true}});
}

}  // namespace

EvalTask::EvalTask(const std::string& file, const Tokenizer& tokenizer,
                   const EvalTaskOptions& options)
    : tokenizer_(tokenizer),
      specials_(options.chat == nullptr ? Trie() : special_tokens(tokenizer)) {
  TextReader lines(list_text_files({file}));
  if (!lines.files().front().json_lines)
    fail_input(file, " is not a task file: expected a name that ends in .jsonl or .json");
  for (TextRecord record; lines.next(&record);) {
    const std::string place = lines.place(record);
    const std::string line = std::move(record.bytes);
    try {
      add(line, place, options);
    } catch (const InputError& e) {
      fail_input(place, ": ", e.what());
    }
    record = {};
  }
  if (documents_.empty()) fail_input(file, " has no questions and no texts");
}

std::vector<std::string> EvalTask::warnings() const {
  std::vector<std::string> out;
  out.reserve(unread_members_.size());
  for (const auto& [name, place] : unread_members_)
    out.push_back(concat(place, ": a message has text in \"", name.substr(0, 64),
                         "\", which the chat template does not read"));
  return out;
}

void EvalTask::add(const std::string& line, const std::string& place,
                   const EvalTaskOptions& options) {
  const auto record = parse_strict_json<OrderedJson>(line, "record");
  if (!record.is_object()) fail_input("expected an object");
  if (record.contains("text") && record["text"].is_string())
    return add_text(record["text"].get<std::string>(), options.sequence_length);
  const auto has = [&](const char* key) { return record.contains(key); };
  if (!has("context") || !has("choices") || !record["choices"].is_array() || !has("label"))
    fail_input("expected a \"text\", or a \"context\" with \"choices\" and a \"label\"");
  std::vector<std::string> choices;
  for (const OrderedJson& choice : record["choices"]) {
    if (!choice.is_string() || choice.get<std::string>().empty())
      fail_input("\"choices\" has an entry that is not a string, or is empty");
    choices.push_back(choice.get<std::string>());
  }
  if (choices.size() < 2) fail_input("\"choices\": expected at least two");
  const WrittenConversation context = context_of(record["context"], options.chat);
  for (const std::string& name : context.unread_members)
    if (unread_members_.size() < kMaxUnreadNames) unread_members_.emplace(name, place);
  Question& question = questions_.emplace_back();
  question.first = documents_.size();
  question.label = label_of(record["label"], choices);
  for (const std::string& choice : choices) {
    question.characters.push_back(static_cast<double>(characters(choice)));
    question.bytes.push_back(static_cast<double>(choice.size()));
    add_continuation(context, options.delimiter + choice, options);
  }
}

int64_t EvalTask::longest() const {
  int64_t longest = 1;
  for (const Example& document : documents_)
    longest = std::max(longest, std::ssize(document.tokens) - 1);
  return longest;
}

int32_t EvalTask::beginning() const {
  const int32_t id = tokenizer_.bos_id() >= 0 ? tokenizer_.bos_id() : tokenizer_.eod_id();
  if (id < 0)
    fail_input("tokenizer ", tokenizer_.name(),
               " has neither a BOS nor an end-of-document token: give a context");
  return id;
}

void EvalTask::add_continuation(WrittenConversation context, const std::string& choice,
                                const EvalTaskOptions& options) {
  const size_t end = end_without_space(context.text), begin = context.text.size();
  for (const size_t at : breaks_of(choice, specials_)) context.breaks.push_back(begin + at);
  const std::string all = context.text + choice;
  const EncodeOptions markup{.parse_special = options.chat != nullptr, .breaks = context.breaks};
  Example& example = documents_.emplace_back();
  example.tokens = tokenizer_.encode(all, markup);
  size_t asked = 1;
  if (end == 0) {
    example.tokens.insert(example.tokens.begin(), beginning());
  } else {
    asked = tokenizer_.encode(all.substr(0, end), markup).size();
    if (options.add_bos && example.tokens.front() != beginning()) {
      example.tokens.insert(example.tokens.begin(), beginning());
      ++asked;
    }
  }
  if (asked >= example.tokens.size())
    fail_input("a choice adds no token to its context, expected at least one");
  example.loss_mask.assign(example.tokens.size(), 0);
  std::fill(example.loss_mask.begin() + static_cast<std::ptrdiff_t>(asked), example.loss_mask.end(),
            uint8_t{1});
  const auto drop = std::max<int64_t>(0, std::ssize(example.tokens) - options.sequence_length - 1);
  truncated_ += drop > 0 ? 1 : 0;
  example.tokens.erase(example.tokens.begin(), example.tokens.begin() + drop);
  example.loss_mask.erase(example.loss_mask.begin(), example.loss_mask.begin() + drop);
}

void EvalTask::add_text(const std::string& text, int64_t window) {
  std::vector<int32_t> tokens = tokenizer_.encode(text);
  tokens.insert(tokens.begin(), beginning());
  const int64_t all = std::ssize(tokens);
  Text& item = texts_.emplace_back();
  item.first = documents_.size();
  item.words = words(text);
  item.bytes = static_cast<double>(text.size());
  for (int64_t done = 1; done < all;) {  // tokens before `done` have been predicted
    const int64_t end = std::min(all, done + window);
    const int64_t begin = std::max<int64_t>(0, end - window - 1);
    Example& example = documents_.emplace_back();
    example.tokens.assign(tokens.begin() + begin, tokens.begin() + end);
    example.loss_mask.assign(example.tokens.size(), 0);
    std::fill(example.loss_mask.begin() + (done - begin), example.loss_mask.end(), uint8_t{1});
    done = end;
  }
  item.last = documents_.size();
}

std::vector<TaskMetric> EvalTask::metrics(const std::vector<double>& lls) const {
  TRIREME_CHECK(lls.size() == documents_.size(), lls.size(), " log-likelihoods for ",
                documents_.size(), " documents");
  std::vector<TaskMetric> out;
  std::vector<double> plain, norm, bytes;
  for (const Question& q : questions_) {
    const auto best = [&](const std::vector<double>* lengths) {
      size_t first = 0;
      const auto score = [&](size_t c) {
        return lls[q.first + c] / (lengths == nullptr ? 1.0 : (*lengths)[c]);
      };
      for (size_t c = 1; c < q.bytes.size(); ++c)
        if (score(c) > score(first)) first = c;
      return first == q.label ? 1.0 : 0.0;
    };
    plain.push_back(best(nullptr));
    norm.push_back(best(&q.characters));
    bytes.push_back(best(&q.bytes));
  }
  if (!plain.empty())
    out = {share("acc", plain), share("acc_norm", norm), share("acc_bytes", bytes)};
  double sum = 0, word_count = 0, byte_count = 0;
  for (const Text& text : texts_) {
    for (size_t d = text.first; d < text.last; ++d) sum += lls[d];
    word_count += text.words;
    byte_count += text.bytes;
  }
  if (byte_count > 0) {
    out.push_back({"word_perplexity", std::exp(-sum / word_count), {}});
    out.push_back({"byte_perplexity", std::exp(-sum / byte_count), {}});
    out.push_back({"bits_per_byte", -sum / byte_count / std::numbers::ln2, {}});
  }
  return out;
}

std::string EvalTask::samples(const std::vector<double>& lls) const {
  std::string out;
  for (const Question& q : questions_) {
    const auto first = lls.begin() + static_cast<std::ptrdiff_t>(q.first);
    const std::vector<double> mine(first, first + std::ssize(q.bytes));
    out += OrderedJson({{"log_likelihoods", mine}, {"label", q.label}}).dump() + "\n";
  }
  for (const Text& text : texts_) {
    double sum = 0;
    for (size_t d = text.first; d < text.last; ++d) sum += lls[d];
    out += OrderedJson({{"log_likelihood", sum}, {"words", text.words}, {"bytes", text.bytes}})
               .dump() +
           "\n";
  }
  return out;
}

}  // namespace trireme
