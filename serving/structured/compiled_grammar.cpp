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
// Of the masks of one text together (TokenMasks::work): a second or so. What takes more ends there.
constexpr int64_t kMostWorkOfAText = 8 * TokenMasks::kMostWork;

Grammar::Node text_of(Grammar& grammar, const GrammarSource& source) {
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
  ways.reserve(source.choices.size());
  for (const std::string& choice : source.choices) ways.push_back(grammar.literal(choice));
  return grammar.choice(std::move(ways));
}

}  // namespace

Grammar::Node grammar_of(Grammar& grammar, const GrammarSource& source) {
  const Grammar::Node text = text_of(grammar, source);
  if (source.tools.empty()) return text;
  return grammar.choice({text, tool_call_grammar(grammar, source.tools)});
}

// Follows one text.
class GrammarReader final : public RuleReader {
 public:
  GrammarReader(std::shared_ptr<const CompiledGrammar> grammar, std::vector<int32_t> end_ids,
                int64_t max_tokens)
      : grammar_(std::move(grammar)),
        end_ids_(std::move(end_ids)),
        tokens_left_(max_tokens),
        mask_(static_cast<size_t>(grammar_->trie_->words())) {
    place_.epoch = ~uint64_t{0};  // nothing has been read
    read({});
  }
  std::span<const uint32_t> mask() const override { return mask_; }
  bool is_whole() const override { return whole_; }
  bool accept(int32_t id) override {
    const std::string_view bytes = grammar_->trie_->bytes(id);
    if (bytes.empty()) return false;
    --tokens_left_;
    return read(bytes);
  }
  size_t look_ahead(std::span<const int32_t> ids, std::vector<uint32_t>& masks) override {
    GrammarReader ahead(*this);
    size_t count = 0;
    for (const int32_t id : ids) {
      const bool allowed = id >= 0 && id < grammar_->trie_->ids() &&
                           (ahead.mask_[static_cast<size_t>(id) / 32] >> (id % 32) & 1) != 0;
      if (!allowed || !ahead.accept(id)) break;
      masks.insert(masks.end(), ahead.mask_.begin(), ahead.mask_.end());
      ++count;
    }
    place_.work = ahead.place_.work;  // what a text may cost, whether it goes this way or not
    return count;
  }

 private:
  // False where no token of the text may follow, whether it may end there or not.
  bool read(std::string_view bytes) {
    CompiledGrammar::Found found;
    std::ranges::fill(mask_, 0);
    const bool is_place = grammar_->read(place_, bytes, tokens_left_, found, mask_);
    whole_ = is_place && found.whole;
    if (whole_)
      for (const int32_t id : end_ids_)
        if (id >= 0 && id < grammar_->trie_->ids())
          mask_[static_cast<size_t>(id) / 32] |= 1u << (id % 32);
    return is_place && found.goes_on;
  }

  std::shared_ptr<const CompiledGrammar> grammar_;
  std::vector<int32_t> end_ids_;
  int64_t tokens_left_;
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
  std::vector<uint32_t> mask(static_cast<size_t>(trie_->words()));
  Place place;
  Found found;
  place.epoch = ~uint64_t{0};
  const bool prepared = masks_.prepare(end);
  if (prepared) read(place, {}, kNeverEnds, found, mask);
  if (masks_.gave_up())
    fail_input("its texts can be read in too many ways at once: make it less ambiguous");
  if (!found.goes_on) fail_input("no token of this model begins a text that satisfies it");
}

std::unique_ptr<RuleReader> CompiledGrammar::begin(std::vector<int32_t> end_ids,
                                                   int64_t max_tokens) const {
  return std::make_unique<GrammarReader>(shared_from_this(), std::move(end_ids), max_tokens);
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

bool CompiledGrammar::read(Place& place, std::string_view bytes, int64_t tokens_left, Found& found,
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
  found.whole = masks_.states().is_whole(place.state);
  // Behind the next token as many bytes may be missing as there are tokens: a byte is a token of most vocabularies.
  found.goes_on = masks_.add(place.state, tokens_left - 1, mask);
  place.work += masks_.work();
  if (place.work > kMostWorkOfAText) found.goes_on = false;
  return true;
}

}  // namespace trireme
