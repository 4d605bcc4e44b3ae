// Masks against brute force: a token is allowed iff some text of the language continues with it.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <regex>
#include <set>

#include "serving/structured/regex_grammar.h"
#include "serving/structured/written_grammar.h"
#include "tests/serving/structured/vocabulary.h"

namespace trireme::test_token_masks {
namespace {

using namespace test;

// All strings over `letters` of up to `length` characters.
std::vector<std::string> strings(const std::string& letters, size_t length) {
  std::vector<std::string> all = {""};
  for (size_t begin = 0, end = 1; length-- > 0; begin = end, end = all.size())
    for (size_t i = begin; i < end; ++i)
      for (const char c : letters) all.push_back(all[i] + c);
  return all;
}

// Lookahead of a reader equals its later states, for these tokens and one that may not follow them.
void compare_ahead(const CompiledGrammar& grammar, std::vector<int32_t> ids) {
  const auto looks = grammar.begin({kEnd}, kManyTokens), goes = grammar.begin({kEnd}, kManyTokens);
  const auto before = std::vector<uint32_t>(looks->mask().begin(), looks->mask().end());
  std::vector<uint32_t> ahead, wanted;
  size_t count = 0;
  for (const int32_t id : ids) {
    if (!allows(goes->mask(), id) || !goes->accept(id)) break;
    wanted.insert(wanted.end(), goes->mask().begin(), goes->mask().end());
    ++count;
  }
  ids.push_back(kEnd);  // stop token: nothing follows
  ASSERT_EQ(looks->look_ahead(ids, ahead), count);
  ASSERT_EQ(ahead, wanted);
  ASSERT_TRUE(std::ranges::equal(looks->mask(), before));
}

// Compares the masks after every prefix of up to three tokens and four characters. language: all
// texts with at most four more characters.
void compare(const CompiledGrammar& grammar, const std::vector<std::string>& tokens,
             const std::vector<std::string>& language) {
  std::set<std::string> beginnings;
  const std::set<std::string> texts(language.begin(), language.end());
  for (const std::string& text : language)
    for (size_t n = 0; n <= text.size(); ++n) beginnings.insert(text.substr(0, n));
  int64_t compared = 0;
  const std::function<void(const std::vector<int32_t>&, const std::string&)> go =
      [&](const std::vector<int32_t>& ids, const std::string& text) {
        compare_ahead(grammar, ids);
        const auto reader = grammar.begin({kEnd}, kManyTokens);
        for (const int32_t id : ids)
          if (!reader->accept(id)) return;
        ASSERT_EQ(reader->is_whole(), texts.contains(text)) << '"' << text << '"';
        ASSERT_EQ(allows(reader->mask(), kEnd), texts.contains(text)) << '"' << text << '"';
        for (size_t id = 1; id < tokens.size(); ++id) {
          const std::string next = text + tokens[id];
          if (next.size() > 4) continue;
          ASSERT_EQ(allows(reader->mask(), static_cast<int32_t>(id)), beginnings.contains(next))
              << '"' << text << "\" + \"" << tokens[id] << '"';
          ++compared;
          if (ids.size() == 3 || !beginnings.contains(next)) continue;
          std::vector<int32_t> more = ids;
          more.push_back(static_cast<int32_t>(id));
          go(more, next);
        }
      };
  go({}, "");
  EXPECT_GT(compared, 0);
}

std::vector<std::string> some_tokens(const std::string& letters) {
  std::vector<std::string> tokens = strings(letters, 2);  // the empty one is the stop token
  for (const char* more : {"aab", "bba", "abab", "ccc", "aaaa"}) tokens.emplace_back(more);
  return tokens;
}

TEST(TokenMasks, AreThoseOfRegularExpressions) {
  const std::vector<std::string> tokens = some_tokens("abc");
  const std::vector<std::string> all = strings("abc", 8);
  for (const char* expression : {"a",
                                 "a*",
                                 "(a+)+$",
                                 "(a|b)*c",
                                 "ab?(c|ba){1,3}",
                                 "(ab|a)(bc|c)?",
                                 "[^a]{2,4}",
                                 "(a*b*)*c",
                                 "(aa|aab|c)+b?",
                                 "a{0}b{2}",
                                 "(a|ab)(c|bcc)(c*)",
                                 "((a|b)(b|c)){2}|c*",
                                 "(ab){0,3}c",
                                 "a{1,3}(bc){0,2}",
                                 "(a{0,2}b){0,2}c",
                                 "(a{0,2})*",
                                 "(a{0,2}b)*",
                                 "(a?b?){0,2}c",
                                 "(a?(b*c)?){0,2}a",
                                 "(ab|ac){0,2}",
                                 "(a|ab){0,2}c",
                                 "[ab]{0,3}"}) {
    SCOPED_TRACE(expression);
    const std::regex reference(expression);
    std::vector<std::string> language;
    for (const std::string& text : all)
      if (std::regex_match(text, reference)) language.push_back(text);
    // With states for each repetition, and with a count where that suffices.
    for (const int64_t min_counted : {64, 1})
      compare(*CompiledGrammar::compile({GrammarSource::Kind::kRegex, expression}, trie_of(tokens),
                                        {.min_counted = min_counted}),
              tokens, language);
  }
}

// Intersections of several regular expressions, with a maximum number of bytes.
TEST(TokenMasks, AreThoseOfIntersections) {
  const std::vector<std::string> tokens = some_tokens("abc");
  const std::vector<std::string> all = strings("abc", 8);
  for (const auto& [one, other, max_bytes] : {std::tuple{"[ab]*", ".*b.*", -1},
                                              {"(ab|c)*", ".{2,}", 5},
                                              {"a*b?c*", "(..)*", 4},
                                              {"(abc)*", ".*", 7},
                                              {"a+", ".*", 3},
                                              {"(aab|b)+", "(a|b)*", 6}}) {
    SCOPED_TRACE(concat(one, " and ", other, ", ", max_bytes));
    CompileBudget budget({});
    Grammar g(budget);
    const auto expression = [&](const char* text) {
      return regex_grammar(g, text, RegexUse::kWholeText);
    };
    const int32_t root = g.add_rule();
    g.define(root, g.named_all({expression(one), expression(other)}, max_bytes));
    const PushdownAutomaton automaton(g, root, budget);
    const TokenTrie trie(tokens);
    TokenMasks masks(automaton, trie);
    const std::regex first(one), second(other);
    std::set<std::string> beginnings;
    for (const std::string& text : all)
      if ((max_bytes < 0 || std::ssize(text) <= max_bytes) && std::regex_match(text, first) &&
          std::regex_match(text, second))
        for (size_t n = 0; n <= text.size(); ++n) beginnings.insert(text.substr(0, n));
    for (const std::string& text : beginnings) {
      if (text.size() > 3) continue;
      int32_t state = masks.states().at(automaton.root());
      for (const char c : text) state = masks.states().step(state, static_cast<uint8_t>(c));
      std::vector<uint32_t> mask(static_cast<size_t>(trie.words()));
      masks.begin(TokenMasks::kMaxWork);
      masks.add(state, kManyTokens, mask);
      for (size_t id = 1; id < tokens.size(); ++id)
        EXPECT_EQ(allows(mask, static_cast<int32_t>(id)), beginnings.contains(text + tokens[id]))
            << '"' << text << "\" + \"" << tokens[id] << '"';
    }
  }
}

// A repetition needs the same number of states and masks for a million repetitions as for a
// hundred.
TEST(TokenMasks, AreOneForTheCountsOfARepetition) {
  const auto trie = trie_of(byte_tokens({"ab", "abab", "ba"}));
  const auto grammar = [&](int64_t turns) {
    CompileBudget budget({});
    Grammar g(budget);
    const int32_t root = g.add_rule();
    g.define(root, g.sequence({g.repeat(g.literal("ab"), 0, turns), g.literal(".")}));
    return PushdownAutomaton(g, root, budget);
  };
  const PushdownAutomaton many = grammar(1'000'000), few = grammar(100);
  EXPECT_EQ(many.states().size(), few.states().size());
  EXPECT_LT(many.states().size(), 5u);
  for (const auto& [automaton, turns] : {std::pair{&few, 100}, {&many, 300}}) {
    TokenMasks masks(*automaton, *trie);
    int32_t state = masks.states().at(automaton->root());
    int64_t work_of_last = 0;
    for (int turn = 0; turn < turns; ++turn) {
      std::vector<uint32_t> mask(static_cast<size_t>(trie->words()));
      masks.begin(TokenMasks::kMaxWork);
      ASSERT_TRUE(masks.add(state, kManyTokens, mask));
      EXPECT_TRUE(allows(mask, 1 + 'a')) << turn;
      EXPECT_EQ(allows(mask, 258), turns == 300 || turn + 2 <= 100) << turn;
      work_of_last = masks.work();
      for (const char c : std::string_view("ab"))
        state = masks.states().step(state, static_cast<uint8_t>(c));
    }
    // A new count, and nothing else.
    EXPECT_LT(work_of_last, automaton == &many ? 20 : TokenMasks::kMaxWork);
    std::vector<uint32_t> mask(static_cast<size_t>(trie->words()));
    masks.begin(TokenMasks::kMaxWork);
    ASSERT_TRUE(masks.add(state, kManyTokens, mask));
    EXPECT_EQ(allows(mask, 1 + 'a'), automaton == &many);
    EXPECT_TRUE(allows(mask, 1 + '.'));
  }
}

TEST(TokenMasks, AreThoseOfNestedRules) {
  // A token may end several rules and start others.
  const std::vector<std::string> tokens = {"",  "(",  ")",  "((",  "))", "()", ")(", ")))",
                                           "x", "x)", "(x", "))(", ",",  "),", "),("};
  const std::string written =
      "root ::= list\nlist ::= \"(\" (item (\",\" item)*)? \")\"\n"
      "item ::= list | \"x\"";
  const auto grammar =
      CompiledGrammar::compile({GrammarSource::Kind::kGrammar, written}, trie_of(tokens));
  // In this language a counter decides whether a prefix is valid, for texts of any length.
  std::mt19937 random(7);
  for (int walk = 0; walk < 200; ++walk) {
    const auto reader = grammar->begin({kEnd}, kManyTokens);
    std::string text;
    for (int n = 0; n < 30; ++n) {
      for (size_t id = 1; id < tokens.size(); ++id) {
        // Depth, and whether an item may or must come next.
        const std::string next = text + tokens[id];
        int depth = 0;
        bool good = true, item = true;  // an item may come next
        bool must = true;               // it must: after a comma, and at the start
        for (const char c : next) {
          if (depth == 0 && !(item && c == '(')) good = false;
          if (c == '(') good = good && item, ++depth, item = true, must = false;
          if (c == 'x') good = good && item && depth > 0, item = must = false;
          if (c == ',') good = good && !item && depth > 0, item = must = true;
          if (c == ')') good = good && !(item && must) && depth > 0, --depth, item = must = false;
        }
        ASSERT_EQ(allows(reader->mask(), static_cast<int32_t>(id)), good) << next;
      }
      const std::vector<int32_t> ids = allowed(reader->mask(), std::ssize(tokens));
      const int32_t id = ids[random() % ids.size()];
      text += tokens[static_cast<size_t>(id)];
      if (id == kEnd || !reader->accept(id)) break;
    }
  }
}

TEST(TokenMasks, AreTheSameWhenStatesHaveBeenForgotten) {
  const std::vector<std::string> tokens = {"", "a", "b", "ab", "ba"};
  CompileBudget budget({});
  Grammar g(budget);
  const int32_t root = g.add_rule();
  g.define(root, g.repeat(g.choice({g.literal("ab"), g.literal("b")}), 2, 5));
  const PushdownAutomaton automaton(g, root, budget);
  const TokenTrie trie(tokens);
  TokenMasks masks(automaton, trie);
  const auto mask_behind = [&](const std::string& text) {
    int32_t state = masks.states().at(automaton.root());
    for (const char c : text) state = masks.states().step(state, static_cast<uint8_t>(c));
    std::vector<uint32_t> mask(static_cast<size_t>(trie.words()));
    masks.add(state, kManyTokens, mask);
    return mask;
  };
  const std::vector<uint32_t> before = mask_behind("abb");
  EXPECT_NE(before, std::vector<uint32_t>(before.size(), 0));
  masks.clear();
  EXPECT_EQ(mask_behind("abb"), before);
}

// A saved state keeps its meaning after all others were evicted, with its stack and its counts.
TEST(TokenMasks, AreThoseOfASavedState) {
  const std::vector<std::string> tokens = {"", "(", ")", "x", "xx", "))", "x)", "xxx)", ",", "),"};
  const std::string written =
      "root ::= \"(\" item (\",\" item){0,2} \")\"\nitem ::= root | \"x\"{0,4}";
  CompileBudget budget({.min_counted = 1});
  Grammar g(budget);
  const int32_t root = g.add_rule();
  g.define(root, written_grammar(g, written));
  const PushdownAutomaton automaton(g, root, budget);
  ASSERT_TRUE(automaton.counts());
  const TokenTrie trie(tokens);
  TokenMasks masks(automaton, trie);
  const auto mask_at = [&](int32_t state) {
    std::vector<uint32_t> mask(static_cast<size_t>(trie.words()));
    masks.begin(TokenMasks::kMaxWork);
    masks.add(state, kManyTokens, mask);
    return mask;
  };
  const std::string text = "((x,(xxx,x)),xxxx,)";
  for (size_t length = 0; length < text.size(); ++length) {
    int32_t state = masks.states().at(automaton.root());
    for (const char c : text.substr(0, length))
      state = masks.states().step(state, static_cast<uint8_t>(c));
    const std::vector<uint32_t> before = mask_at(state);
    EXPECT_NE(before, std::vector<uint32_t>(before.size(), 0)) << length;
    const GrammarStates::Snapshot saved = masks.states().save(state);
    masks.clear();
    masks.states().at(automaton.root());  // other state numbers than before
    state = masks.restore(saved);
    EXPECT_EQ(mask_at(state), before) << length;
    for (const char c : text.substr(length))
      state = masks.states().step(state, static_cast<uint8_t>(c));
    EXPECT_TRUE(masks.states().is_whole(state)) << length;
  }
}

// States that differ in a count are evicted from time to time, and a text is not read again from
// its start each time.
TEST(TokenMasks, CountedTextsMayBeLong) {
  constexpr int64_t kLength = 240'000;
  const std::string piece(48, 'x');
  const auto grammar = CompiledGrammar::compile(
      {GrammarSource::Kind::kJsonSchema, concat(R"({"type":"string","maxLength":)", kLength, "}")},
      trie_of(byte_tokens({piece})));
  const auto reader = grammar->begin({kEnd}, kManyTokens);
  ASSERT_TRUE(reader->accept(1 + '"'));
  for (int64_t i = 0; i < kLength / std::ssize(piece); ++i) {
    ASSERT_TRUE(allows(reader->mask(), 257)) << i;
    ASSERT_TRUE(reader->accept(257)) << i;
  }
  EXPECT_EQ(allowed(reader->mask(), 258), (std::vector<int32_t>{1 + '"'}));
  EXPECT_FALSE(reader->accept(1 + '"'));
  EXPECT_TRUE(reader->is_whole());
}

// Texts with more possible parses after each letter.
TEST(TokenMasks, AreGivenUpWhereTheyTakeTooLong) {
  CompileBudget budget({});
  Grammar g(budget);
  const int32_t root = g.add_rule();
  std::vector<Grammar::Node> ways;
  for (int64_t i = 1; i <= 20; ++i)
    ways.push_back(g.named(
        g.sequence({g.repeat(g.chars({{'a', 'c'}}), i, i + 3), g.repeat(g.literal("d"), 0, i)})));
  g.define(root, g.repeat(g.choice(ways), 1, -1));
  const PushdownAutomaton automaton(g, root, budget);
  const TokenTrie trie(some_tokens("abcd"));
  TokenMasks all(automaton, trie), few(automaton, trie, 1000);
  const auto state_of = [&](TokenMasks& masks, const std::string& text) {
    int32_t state = masks.states().at(automaton.root());
    for (const char c : text) state = masks.states().step(state, static_cast<uint8_t>(c));
    return state;
  };
  const std::string text = "abcabcabcabcabc";
  std::vector<uint32_t> mask(static_cast<size_t>(trie.words()));
  EXPECT_TRUE(all.add(state_of(all, text), kManyTokens, mask));
  EXPECT_GT(all.work(), 8000);
  std::ranges::fill(mask, 0);
  EXPECT_FALSE(few.add(state_of(few, text), kManyTokens, mask));
  EXPECT_TRUE(few.gave_up());
  EXPECT_LT(few.work(), all.work() / 2);
  EXPECT_EQ(mask, std::vector<uint32_t>(mask.size(), 0));
}

// Whatever tokens are sampled, a text ends within the available tokens if that many bytes suffice.
TEST(TokenMasks, LeadToAnEndThatIsNear) {
  const std::vector<std::string> tokens =
      byte_tokens({"{\"", "\":", "\"}", "]]", "[[", "aa", "\", \"", "null", "\u0041"});
  const auto trie = trie_of(tokens);
  using Kind = GrammarSource::Kind;
  const std::vector<std::tuple<Kind, std::string, int64_t>> sources = {
      {Kind::kJsonSchema,
       R"({"type":"object","properties":{"a":{"type":"array"},"b":{"minLength":9,"type":"string"},)"
       R"("c":{"$ref":"#"}},"required":["a"]})",
       8},  // {"a":[]}
      {Kind::kJsonSchema, R"({"type":"array","items":{"$ref":"#"},"minItems":0})", 2},
      {Kind::kJsonObject, "", 2},
      {Kind::kRegex, "(abc)+(d{30})?", 3},
      {Kind::kGrammar, "root ::= \"(\" root root \")\" | [a-z]", 1}};
  std::mt19937 random(5);
  for (const auto& [kind, source, shortest] : sources) {
    const auto grammar = CompiledGrammar::compile({kind, source}, trie);
    ASSERT_EQ(grammar->automaton().bytes_to_end(grammar->automaton().root()), shortest) << source;
    for (int n = 0; n < 300; ++n) {
      const int64_t most = shortest + static_cast<int64_t>(random() % 60);
      const auto reader = grammar->begin({kEnd}, most);
      std::string text;
      bool goes_on = true;
      for (int64_t i = 0; i < most && goes_on; ++i) {
        const std::vector<int32_t> ids = allowed(reader->mask(), trie->ids());
        ASSERT_FALSE(ids.empty()) << text;
        const int32_t id = ids[random() % ids.size()];
        if (id == kEnd) break;
        text += tokens[static_cast<size_t>(id)];
        goes_on = reader->accept(id);
      }
      ASSERT_TRUE(reader->is_whole()) << source << ": " << text;
    }
  }
}

TEST(TokenMasks, LeadToTheNearestEndWhereNoneIsNearEnough) {
  const auto grammar = CompiledGrammar::compile({GrammarSource::Kind::kRegex, "a(b{9}|c{5})"},
                                                trie_of({"", "a", "b", "c", "ab", "ac"}));
  EXPECT_EQ(allowed(grammar->begin({kEnd}, 3)->mask(), 6), (std::vector<int32_t>{5}));
  EXPECT_EQ(allowed(grammar->begin({kEnd}, 7)->mask(), 6), (std::vector<int32_t>{1, 5}));
  EXPECT_EQ(allowed(grammar->begin({kEnd}, 9)->mask(), 6), (std::vector<int32_t>{1, 4, 5}));
}

// No token begins an item, and the text after it has more bytes than tokens are left.
TEST(TokenMasks, AStateWithoutATokenEndsTheTextHoweverFarItsEnd) {
  const auto grammar =
      CompiledGrammar::compile({GrammarSource::Kind::kGrammar,
                                "root ::= \"(\" item \"))))\"\nitem ::= \"x\" | \"x\" item \"y\""},
                               trie_of({"", "(", ")"}));
  for (const int64_t max_tokens : {int64_t{3}, kManyTokens}) {
    const auto reader = grammar->begin({kEnd}, max_tokens);
    EXPECT_EQ(allowed(reader->mask(), 3), (std::vector<int32_t>{1}));
    EXPECT_FALSE(reader->accept(1)) << max_tokens;
    EXPECT_FALSE(reader->is_whole());
  }
}

TEST(TokenMasks, EqualTokensAreAllowedTogether) {
  const auto grammar = CompiledGrammar::compile({GrammarSource::Kind::kChoice, "", {"yes", "yea"}},
                                                trie_of({"", "y", "ye", "y", "yes!", "ea"}));
  const auto reader = grammar->begin({kEnd}, kManyTokens);
  EXPECT_EQ(allowed(reader->mask(), 6), (std::vector<int32_t>{1, 2, 3}));
  EXPECT_TRUE(reader->accept(3));
  EXPECT_EQ(allowed(reader->mask(), 6), (std::vector<int32_t>{5}));
  EXPECT_FALSE(reader->accept(5));  // nothing may follow
  EXPECT_TRUE(reader->is_whole());
}

TEST(TokenMasks, ATextThatNoTokenGoesOnIsNotWhole) {
  const auto grammar = CompiledGrammar::compile({GrammarSource::Kind::kChoice, "", {"yes", "no"}},
                                                trie_of({"", "y", "e", "n", "o"}));
  const auto reader = grammar->begin({kEnd}, kManyTokens);
  EXPECT_TRUE(reader->accept(1));
  EXPECT_FALSE(reader->accept(2));  // "s" is missing
  EXPECT_FALSE(reader->is_whole());
}

// Evicted states release their memory, so that the limits are kept again.
TEST(TokenMasks, ClearGivesMemoryBack) {
  const auto trie = trie_of(byte_tokens());
  const auto grammar = CompiledGrammar::compile(
      {GrammarSource::Kind::kGrammar, "root ::= \"(\" root \")\" | [a-z]{0,300}"}, trie);
  TokenMasks masks(grammar->automaton(), *trie);
  const int64_t empty = masks.bytes();
  int32_t state = masks.states().at(grammar->automaton().root());
  std::vector<uint32_t> mask(static_cast<size_t>(trie->words()));
  for (int i = 0; i < 400; ++i) {
    state = masks.step(state, static_cast<uint8_t>(i < 200 ? '(' : 'a' + i % 26));
    masks.add(state, kManyTokens, mask);
  }
  EXPECT_GT(masks.bytes(), empty + (64 << 10));
  masks.states().clear();
  masks.clear();
  // The masks of automaton states are kept.
  TokenMasks fresh(grammar->automaton(), *trie);
  EXPECT_LT(masks.states().bytes(), fresh.states().bytes() + 1);
}

}  // namespace
}  // namespace trireme::test_token_masks
