#include "serving/structured/compiled_grammar.h"

#include <algorithm>

#include "serving/structured/json_schema_grammar.h"
#include "serving/structured/regex_grammar.h"
#include "serving/structured/tool_format.h"
#include "serving/structured/written_grammar.h"

namespace trireme {
namespace {

// What is not prepared in this time is computed when it is first needed, a part of it in each step.
constexpr std::chrono::milliseconds kPreparing{400};

}  // namespace

Grammar::Node grammar_of(Grammar& grammar, const GrammarSource& source) {
  switch (source.kind) {
    case GrammarSource::Kind::kJsonObject: return json_object_grammar(grammar);
    case GrammarSource::Kind::kJsonSchema: return json_schema_grammar(grammar, source.text);
    case GrammarSource::Kind::kRegex:
      return regex_grammar(grammar, source.text, RegexUse::kWholeText);
    case GrammarSource::Kind::kGrammar: return written_grammar(grammar, source.text);
    case GrammarSource::Kind::kToolCalls: return tool_call_grammar(grammar, source.text);
    case GrammarSource::Kind::kChoice: break;
  }
  std::vector<Grammar::Node> ways;
  for (const std::string& choice : source.choices) ways.push_back(grammar.literal(choice));
  return grammar.choice(std::move(ways));
}

// Follows one text.
class GrammarReader final : public TextReader {
 public:
  GrammarReader(std::shared_ptr<const CompiledGrammar> grammar, std::vector<int32_t> end_ids)
      : grammar_(std::move(grammar)),
        end_ids_(std::move(end_ids)),
        mask_(static_cast<size_t>(grammar_->trie_->words())) {
    place_.epoch = ~uint64_t{0};  // nothing has been read
    read({});
  }
  std::span<const uint32_t> mask() const override { return mask_; }
  bool is_whole() const override { return whole_; }
  bool accept(int32_t id) override {
    const std::string_view bytes = grammar_->trie_->bytes(id);
    if (bytes.empty()) return false;
    return read(bytes);
  }

 private:
  // False where no token of the text may follow, whether it may end there or not.
  bool read(std::string_view bytes) {
    bool goes_on = false;
    std::ranges::fill(mask_, 0);
    if (!grammar_->read(place_, bytes, whole_, goes_on, mask_)) return whole_ = false;
    if (whole_)
      for (const int32_t id : end_ids_)
        if (id >= 0 && id < grammar_->trie_->ids())
          mask_[static_cast<size_t>(id) / 32] |= 1u << (id % 32);
    return goes_on;
  }

  std::shared_ptr<const CompiledGrammar> grammar_;
  std::vector<int32_t> end_ids_;
  CompiledGrammar::Place place_;
  bool whole_ = false;
  std::vector<uint32_t> mask_;
};

CompiledGrammar::CompiledGrammar(PushdownAutomaton automaton, std::shared_ptr<const TokenTrie> trie)
    : automaton_(std::move(automaton)), trie_(std::move(trie)), masks_(automaton_, *trie_) {}

std::shared_ptr<const CompiledGrammar> CompiledGrammar::compile(
    const GrammarSource& source, std::shared_ptr<const TokenTrie> trie,
    const GrammarLimits& limits) {
  CompileBudget budget(limits);
  Grammar grammar(budget);
  const Grammar::Node text = grammar_of(grammar, source);
  const int32_t root = grammar.add_rule();
  grammar.define(root, text);
  PushdownAutomaton automaton(grammar, root, budget);
  const std::shared_ptr<CompiledGrammar> made(
      new CompiledGrammar(std::move(automaton), std::move(trie)));
  made->prepare(std::min(budget.end(), std::chrono::steady_clock::now() + kPreparing));
  return made;
}

void CompiledGrammar::prepare(std::chrono::steady_clock::time_point end) {
  masks_.prepare(end);
  std::vector<uint32_t> mask(static_cast<size_t>(trie_->words()));
  Place place;
  bool whole = false, goes_on = false;
  place.epoch = ~uint64_t{0};
  read(place, {}, whole, goes_on, mask);
  if (!goes_on) fail_input("no token of this model begins a text that satisfies it");
}

std::unique_ptr<TextReader> CompiledGrammar::begin(std::vector<int32_t> end_ids) const {
  return std::make_unique<GrammarReader>(shared_from_this(), std::move(end_ids));
}

int64_t CompiledGrammar::bytes() const {
  const std::lock_guard lock(mutex_);
  return masks_.bytes() + std::ssize(automaton_.states()) * 200;
}

bool CompiledGrammar::step(Place& place, std::string_view bytes) const {
  for (const char byte : bytes) {
    if (place.state == GrammarStates::kDead) return false;
    place.state = masks_.states().step(place.state, static_cast<uint8_t>(byte));
  }
  return place.state != GrammarStates::kDead;
}

bool CompiledGrammar::read(Place& place, std::string_view bytes, bool& whole, bool& goes_on,
                           std::span<uint32_t> mask) const {
  const std::lock_guard lock(mutex_);
  if (masks_.is_full()) {
    masks_.clear();
    ++epoch_;
  }
  if (place.epoch != epoch_) {
    place.epoch = epoch_;
    place.state = masks_.states().at(automaton_.root());
    step(place, place.text);
  }
  place.text += bytes;
  if (!step(place, bytes)) return false;
  whole = masks_.states().is_whole(place.state);
  goes_on = masks_.add(place.state, mask);
  return true;
}

}  // namespace trireme
