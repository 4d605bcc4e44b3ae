#include "engine/text/conversation.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine/core/error.h"
#include "engine/io/strict_json.h"
#include "engine/text/jinja/characters.h"
#include "engine/text/named_tokens.h"
#include "engine/text/unicode.h"

namespace trireme {
namespace {

using OrderedJson = nlohmann::ordered_json;

size_t end_of_character(std::string_view text, size_t at) {
  do ++at;
  while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80);
  return at;
}

// The text with a mark at each of its breaks.
std::string marked(const std::string& text, const Trie& specials) {
  std::string out;
  size_t copied = 0;
  for (const size_t end : breaks_of(text, specials)) {
    out.append(text, copied, end - copied) += jinja::kMark;
    copied = end;
  }
  return out.append(text, copied);
}

// All strings in it, names of members too.
OrderedJson marked(const OrderedJson& value, const Trie& specials) {
  if (value.is_string()) return marked(value.get_ref<const std::string&>(), specials);
  if (value.is_array()) {
    OrderedJson out = OrderedJson::array();
    for (const OrderedJson& item : value) out.push_back(marked(item, specials));
    return out;
  }
  if (!value.is_object()) return value;
  // Names that differ still do: no look-up, which would take the square of their number.
  OrderedJson::object_t out;
  for (const auto& [name, item] : value.items())
    out.push_back({marked(name, specials), marked(item, specials)});
  return out;
}

// Takes the marks out of the text; where they were are the breaks. O(text + ranges log marks).
void take_out_marks(WrittenConversation& written) {
  std::vector<size_t> marks;  // offsets into the text that has them
  std::string out;
  size_t copied = 0;
  for (size_t at; (at = written.text.find(jinja::kMark, copied)) != std::string::npos;) {
    out.append(written.text, copied, at - copied);
    copied = at + 1;
    marks.push_back(at);
    if (written.breaks.empty() || written.breaks.back() < out.size())
      written.breaks.push_back(out.size());
  }
  if (marks.empty()) return;
  out.append(written.text, copied);
  // A place of the marked text has lost the marks before it.
  const auto place = [&](size_t at) {
    return at - static_cast<size_t>(std::ranges::lower_bound(marks, at) - marks.begin());
  };
  for (auto& [begin, end] : written.generated) {
    begin = place(begin);
    end = place(end);
  }
  written.text = std::move(out);
}

// Data sets hold tools as text, because their columns have one type.
void read_tools(OrderedJson& variables) {
  const auto found = variables.find("tools");
  if (found == variables.end() || !found->is_string()) return;
  OrderedJson& tools = *found;
  const auto text = tools.get<std::string>();
  tools = text.empty() ? OrderedJson()
                       : parse_strict_json<OrderedJson>(
                             text, "\"tools\"", {.keys_per_object = 4096, .long_integers = true});
  if (!tools.is_array() && !tools.is_null()) fail_input("\"tools\" is the text of no list");
}

// The list of messages without members that are null, as transformers drop them: clients write
// "content": null beside tool calls, and a template would write it out as "None".
void read_messages(OrderedJson& variables) {
  const auto found = variables.find("messages");
  if (found == variables.end()) return;
  if (!found->is_array()) fail_input("\"messages\" is no list of messages");
  for (OrderedJson& message : *found) {
    if (!message.is_object()) fail_input("\"messages\" holds what is no object");
    OrderedJson::object_t kept;
    for (auto& [name, value] : message.items())
      if (!value.is_null()) kept.push_back({name, std::move(value)});
    message = std::move(kept);
  }
}

}  // namespace

std::string unused_noncharacter(const OrderedJson& value) {
  const std::string text = value.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
  for (char last = '\x90'; last <= '\xAF'; ++last) {
    std::string mark = {'\xEF', '\xB7', last};
    if (text.find(mark) == std::string::npos) return mark;
  }
  fail_input("a conversation uses every one of the noncharacters U+FDD0 to U+FDEF");
}

Trie special_tokens(const Tokenizer& tokenizer) {
  std::vector<std::pair<std::string, int32_t>> entries;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    if (!tokenizer.is_control(id)) continue;
    if (std::string token = tokenizer.token(id); !token.empty())
      entries.emplace_back(std::move(token), id);
  }
  return Trie(std::move(entries));
}

std::vector<size_t> breaks_of(std::string_view text, const Trie& specials) {
  std::vector<size_t> breaks;
  for (size_t at = 0; at < text.size(); ++at) {
    bool spells = false;
    if (specials.can_begin_with(text[at]))
      specials.for_each_prefix(text, at, [&](size_t, int32_t) { spells = true; });
    if (spells) breaks.push_back(end_of_character(text, at));
  }
  return breaks;
}

ConversationWriter::ConversationWriter(const ChatTemplate& chat, const Tokenizer& tokenizer,
                                       bool as_markup)
    : chat_(chat),
      tokenizer_(tokenizer),
      specials_(as_markup ? Trie() : special_tokens(tokenizer)),
      named_(named_tokens(tokenizer.name())) {}

WrittenConversation ConversationWriter::write(OrderedJson variables) const {
  read_messages(variables);
  read_tools(variables);
  // A mark is put into what spells a special token, and found again in what the template made of
  // it.
  OrderedJson given = marked(variables, specials_);
  const auto set_own = [&](const char* name, int32_t id) {
    if (variables.contains(name))
      given[name] = variables[name];
    else if (id >= 0)
      given[name] = valid_utf8(tokenizer_.token(id));
  };
  set_own("bos_token", tokenizer_.bos_id());
  set_own("eos_token", tokenizer_.eod_id());
  for (const auto& [name, token] : named_)
    if (!variables.contains(name)) given[name] = token;
  WrittenConversation written{chat_.render(given), {}};
  take_out_marks(written);
  return written;
}

int32_t ConversationWriter::end_of_turn() const {
  const std::string said = unused_noncharacter(OrderedJson());
  std::string text;
  try {
    text =
        write({{"messages",
                {{{"role", "user"}, {"content", "a"}}, {{"role", "assistant"}, {"content", said}}}},
               {"add_generation_prompt", false}})
            .text;
  } catch (const InputError&) {
    return -1;  // a template of other messages
  }
  const size_t found = text.rfind(said);
  if (found == std::string::npos) return -1;
  const size_t at = text.find_first_not_of(" \n", found + said.size());
  int32_t end = -1;
  if (at != std::string::npos)
    special_tokens(tokenizer_).for_each_prefix(text, at, [&](size_t, int32_t id) { end = id; });
  return end;
}

}  // namespace trireme
