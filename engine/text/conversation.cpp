#include "engine/text/conversation.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine/core/error.h"
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

// Text with a mark at each of its breaks.
std::string marked(const std::string& text, const Trie& specials) {
  std::string out;
  size_t copied = 0;
  for (const size_t end : breaks_of(text, specials)) {
    out.append(text, copied, end - copied) += jinja::kMark;
    copied = end;
  }
  return out.append(text, copied);
}

// Marks all strings of a value, including names of members.
OrderedJson marked(const OrderedJson& value, const Trie& specials) {
  if (value.is_string()) return marked(value.get_ref<const std::string&>(), specials);
  if (value.is_array()) {
    OrderedJson out = OrderedJson::array();
    for (const OrderedJson& item : value) out.push_back(marked(item, specials));
    return out;
  }
  if (!value.is_object()) return value;
  // Distinct names stay distinct: appending avoids a look-up, which would be quadratic in their
  // number.
  OrderedJson::object_t out;
  for (const auto& [name, item] : value.items())
    out.push_back({marked(name, specials), marked(item, specials)});
  return out;
}

// Removes the marks from the text; their positions are the breaks. O(text + ranges log marks).
void take_out_marks(WrittenConversation& written) {
  std::vector<size_t> marks;  // offsets into the text with marks
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
  // Offset after removal of the marks before it.
  const auto place = [&](size_t at) {
    return at - static_cast<size_t>(std::ranges::lower_bound(marks, at) - marks.begin());
  };
  for (auto& [begin, end] : written.generated) {
    begin = place(begin);
    end = place(end);
  }
  written.text = std::move(out);
}

// Rendered template. If it fails and arguments of a call are text, the message names them:
// templates that iterate over arguments need an object.
RenderedChat rendered(const ChatTemplate& chat, const OrderedJson& given) {
  try {
    return chat.render(given);
  } catch (const InputError& error) {
    const std::string where = text_arguments(given);
    if (where.empty()) throw;
    fail_input(error.what(), "; ", where, " is passed to the template as text, not as an object");
  }
}

}  // namespace

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
  const FinalMessage final_message(variables);
  const std::vector<MessageMember> unread = read_chat_variables(variables, chat_);
  // Special tokens spelled in messages get a mark, which is located again in the rendered text.
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
  WrittenConversation written{rendered(chat_, given), {}, {}};
  take_out_marks(written);
  final_message.cut(written, written.breaks);
  written.unread_members = lost_members(unread, written.text);
  return written;
}

void check_all_read(const WrittenConversation& written) {
  if (!written.unread.empty()) fail_input(unread_text(written.unread.front()));
}

std::string unread_text(const std::string& variable) {
  return concat("the chat template ignores \"", variable,
                "\": leave them out, or use a template that renders them");
}

std::vector<int32_t> ConversationWriter::ends_of_turn() const {
  std::vector<int32_t> ends;
  for (const auto& [name, source] : chat_.sources())
    if (const int32_t end = end_of_turn(name); end >= 0 && !std::ranges::count(ends, end))
      ends.push_back(end);
  return ends;
}

int32_t ConversationWriter::end_of_turn(const std::string& name) const {
  const std::string said = unused_noncharacter(OrderedJson());
  std::string text;
  try {
    text =
        write({{"messages",
                {{{"role", "user"}, {"content", "a"}}, {{"role", "assistant"}, {"content", said}}}},
               {"add_generation_prompt", false},
               {"chat_template", name}})
            .text;
  } catch (const InputError&) {
    return -1;  // the template is for other messages
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
