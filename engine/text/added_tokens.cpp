#include "engine/text/added_tokens.h"

#include "engine/text/control_split.h"
#include "engine/text/json_fields.h"
#include "engine/text/unicode.h"
#include "engine/text/vocabulary.h"

namespace trireme {
namespace {

// Character before `at`, which must not be 0.
char32_t character_before(std::string_view text, size_t at) {
  do --at;
  while ((static_cast<unsigned char>(text[at]) & 0xC0) == 0x80);
  return next_character(text, at);
}

char32_t character_at(std::string_view text, size_t at) { return next_character(text, at); }

bool stands_alone(std::string_view text, size_t begin, size_t end) {
  return (begin == 0 || !is_word(character_before(text, begin))) &&
         (end == text.size() || !is_word(character_at(text, end)));
}

}  // namespace

AddedToken read_added_token(const nlohmann::json& item, const std::string& what) {
  AddedToken t;
  const auto id = field<int64_t>(item, "id", what);
  t.content = field<std::string>(item, "content", what);
  if (id < 0 || id >= kMaxVocabulary || t.content.empty() || std::ssize(t.content) > kMaxTokenBytes)
    fail_input(what, ": the added token ", item.dump().substr(0, 80), " has no id from 0 to ",
               kMaxVocabulary - 1, " or no content of 1 to ", kMaxTokenBytes, " bytes");
  t.id = static_cast<int32_t>(id);
  t.special = field_or(item, "special", what, false);
  t.normalized = field_or(item, "normalized", what, !t.special);
  t.single_word = field_or(item, "single_word", what, false);
  t.lstrip = field_or(item, "lstrip", what, false);
  t.rstrip = field_or(item, "rstrip", what, false);
  return t;
}

AddedTokens::AddedTokens(const nlohmann::json& json, const Normalizer& normalizer,
                         const std::string& what) {
  if (json.is_null()) return;
  if (!json.is_array()) fail_input(what, ": \"added_tokens\" is not a list");
  std::vector<AddedToken> tokens;
  for (const auto& item : json) tokens.push_back(read_added_token(item, what));
  *this = AddedTokens(std::move(tokens), normalizer);
}

AddedTokens::AddedTokens(std::vector<AddedToken> tokens, const Normalizer& normalizer)
    : tokens_(std::move(tokens)) {
  std::vector<std::pair<std::string, int32_t>> entries[2][2];
  for (size_t i = 0; i < tokens_.size(); ++i) {
    const AddedToken& t = tokens_[i];
    const auto place = static_cast<int32_t>(i);
    const std::string looks = t.normalized ? normalizer.apply(t.content) : t.content;
    if (looks.empty() || std::ssize(looks) > kMaxTokenBytes) continue;
    if (longest_ >= 0) longest_ = t.lstrip || t.rstrip ? -1 : std::max(longest_, std::ssize(looks));
    entries[t.normalized][1].emplace_back(looks, place);
    if (!t.special) entries[t.normalized][0].emplace_back(looks, place);
  }
  for (int normalized = 0; normalized < 2; ++normalized)
    for (int special = 0; special < 2; ++special)
      tries_[normalized][special] = Trie(std::move(entries[normalized][special]));
}

void AddedTokens::split(std::string_view text, bool normalized, bool special,
                        std::span<const size_t> breaks, const std::function<void(int32_t)>& token,
                        const std::function<void(std::string_view)>& part) const {
  const Trie& trie = tries_[normalized][special];
  size_t done = 0;
  for (size_t at = 0; at < text.size();) {
    size_t end = at;
    int32_t place = -1;
    if (trie.can_begin_with(text[at]))
      trie.for_each_prefix(text, at, [&](size_t e, int32_t p) {
        if (!tokens_[static_cast<size_t>(p)].special || !has_break(breaks, at, e))
          end = e, place = p;
      });
    if (place < 0) {
      ++at;
      continue;
    }
    const AddedToken& found = tokens_[static_cast<size_t>(place)];
    size_t begin = at;
    at = end;
    if (found.single_word && !stands_alone(text, begin, end)) continue;
    if (found.lstrip)
      while (begin > done && is_white_space(character_before(text, begin))) {
        do --begin;
        while ((static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80);
      }
    if (found.rstrip)
      for (size_t next = at; next < text.size() && is_white_space(next_character(text, next));)
        at = next;
    if (begin > done) part(text.substr(done, begin - done));
    token(found.id);
    done = at;
  }
  if (done < text.size()) part(text.substr(done));
}

}  // namespace trireme
