// A grammar that is ready for a model's tokens (serving/scheduler/text_rule.h).
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "serving/scheduler/text_rule.h"
#include "serving/structured/grammar_memory.h"
#include "serving/structured/mask_worker.h"
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

// Whose a grammar is, what its memory is charged to, and who makes masks that an engine's thread
// has no time for.
struct GrammarOwner {
  std::string tenant = {};
  std::shared_ptr<GrammarMemory> memory = {};  // absent: no bound
  std::weak_ptr<MaskWorker> worker = {};       // absent: the reader's own thread
};

// The budget of GrammarMemory does not suffice.
class GrammarMemoryError : public Error {
 public:
  explicit GrammarMemoryError(GrammarMemory::Answer why);
  GrammarMemory::Answer why() const { return why_; }

 private:
  GrammarMemory::Answer why_;
};

class CompiledGrammar final : public TextRule,
                              public std::enable_shared_from_this<CompiledGrammar> {
 public:
  // InputError where the source is wrong, asks for what is not supported, or costs more than the
  // limits allow; GrammarMemoryError.
  static std::shared_ptr<const CompiledGrammar> compile(const GrammarSource& source,
                                                        std::shared_ptr<const TokenTrie> trie,
                                                        const GrammarLimits& limits = {},
                                                        GrammarOwner owner = {});

  // Where each byte is a token, a text is cut off only if the shortest there is has more than
  // max_tokens bytes.
  std::unique_ptr<RuleReader> begin(std::vector<int32_t> end_ids, int64_t max_tokens,
                                    std::shared_ptr<MaskPace> pace = {}) const override;
  const PushdownAutomaton& automaton() const { return automaton_; }
  int64_t bytes() const { return bytes_; }  // charged

 private:
  friend class GrammarReader;
  friend struct MaskJob;
  // How far a text has been read; found again once the states have been forgotten: from the last
  // saved one, by what was read since.
  struct Place {
    int32_t state = 0;
    uint64_t epoch = ~uint64_t{0};                              // nothing has been read
    std::shared_ptr<const GrammarStates::Snapshot> saved = {};  // absent: the beginning
    std::string text = {};                                      // since then
    int64_t work = 0;                                           // that its masks have cost
  };
  // What is known of a place.
  struct Found {
    bool whole = false;         // the text may end there
    bool goes_on = false;       // a token may follow
    bool gave_up = false;       // it has not been found out, for want of work
    bool lacks_memory = false;  // or of memory
  };
  CompiledGrammar(PushdownAutomaton automaton, std::shared_ptr<const TokenTrie> trie,
                  GrammarOwner owner);
  void prepare();
  bool charge(int64_t bytes) const;
  // Moves a place behind these bytes. The mask is of what may follow, where a text of so many
  // tokens more may come behind it.
  Found read(Place& place, std::string_view bytes, int64_t tokens_left,
             std::span<uint32_t> mask) const;
  // The same if it takes no more than `work`, which is taken from it, and nobody else is at it;
  // else the place stays.
  std::optional<Found> try_read(Place& place, std::string_view bytes, int64_t tokens_left,
                                std::span<uint32_t> mask, int64_t& work) const;
  Found read_locked(Place& place, std::string_view bytes, int64_t tokens_left,
                    std::span<uint32_t> mask, int64_t work) const;
  void forget() const noexcept;
  void save(Place& place) const;
  bool step(Place& place, std::string_view bytes) const;

  PushdownAutomaton automaton_;
  std::shared_ptr<const TokenTrie> trie_;
  std::weak_ptr<MaskWorker> worker_;
  int64_t automaton_bytes_ = 0;
  mutable std::atomic<int64_t> bytes_{0};
  mutable std::mutex mutex_;  // of those below
  mutable GrammarCharge charge_;
  mutable TokenMasks masks_;
  mutable uint64_t epoch_ = 0;
};

}  // namespace trireme
