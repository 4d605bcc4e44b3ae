// A grammar that is ready for a model's tokens (serving/scheduler/text_rule.h).
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "serving/scheduler/text_rule.h"
#include "serving/structured/token_masks.h"

namespace trireme {

// What a text must be, in one of the languages there are for it.
struct GrammarSource {
  enum class Kind { kJsonObject, kJsonSchema, kRegex, kChoice, kGrammar, kToolCalls };
  Kind kind = Kind::kJsonObject;
  std::string text = {};  // the schema as JSON, the regular expression, the grammar, the tools
  std::vector<std::string> choices = {};  // of kChoice
  std::string tools = {};  // of which calls may stand in place of such a text; "": none
  bool operator==(const GrammarSource&) const = default;
};

Grammar::Node grammar_of(Grammar& grammar, const GrammarSource& source);

class CompiledGrammar final : public TextRule,
                              public std::enable_shared_from_this<CompiledGrammar> {
 public:
  // InputError where the source is wrong, asks for what is not supported, or costs more than the limits allow.
  static std::shared_ptr<const CompiledGrammar> compile(const GrammarSource& source,
                                                        std::shared_ptr<const TokenTrie> trie,
                                                        const GrammarLimits& limits = {});

  // Where each byte is a token, a text is cut off only if the shortest there is has more than max_tokens bytes.
  std::unique_ptr<RuleReader> begin(std::vector<int32_t> end_ids,
                                    int64_t max_tokens) const override;
  const PushdownAutomaton& automaton() const { return automaton_; }
  int64_t bytes() const;  // that it takes now, about

 private:
  friend class GrammarReader;
  // How far a text has been read; found again by reading it anew once the states have been forgotten.
  struct Place {
    int32_t state = 0;
    uint64_t epoch = 0;
    std::string text = {};
    int64_t work = 0;  // that its masks have cost
  };
  CompiledGrammar(PushdownAutomaton automaton, std::shared_ptr<const TokenTrie> trie);
  void prepare(std::chrono::steady_clock::time_point end);
  // What is known of a place.
  struct Found {
    bool whole = false;    // the text may end there
    bool goes_on = false;  // a token may follow
  };
  // The place behind these bytes; false: there is none. The mask is of what may follow, where a text of so many
  // tokens more may come behind it.
  bool read(Place& place, std::string_view bytes, int64_t tokens_left, Found& found,
            std::span<uint32_t> mask) const;
  bool step(Place& place, std::string_view bytes) const;

  PushdownAutomaton automaton_;
  std::shared_ptr<const TokenTrie> trie_;
  mutable std::mutex mutex_;  // of those below
  mutable TokenMasks masks_;
  mutable uint64_t epoch_ = 0;
};

}  // namespace trireme
