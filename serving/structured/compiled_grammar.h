// Compiled grammar: a TextRule (serving/scheduler/text_rule.h) for the vocabulary of a model.
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

// Source of a grammar: the required form of a completion, in one of the supported languages.
struct GrammarSource {
  enum class Kind { kJsonObject, kJsonSchema, kRegex, kChoice, kGrammar, kToolCalls };
  Kind kind = Kind::kJsonObject;
  // JSON Schema, regular expression, grammar, or the tools as JSON (tool_format.h); unused for
  // kJsonObject and kChoice.
  std::string text = {};
  std::vector<std::string> choices = {};  // of kChoice
  // Tools that may be called instead of writing such a text, as JSON (tool_format.h); "": none.
  std::string tools = {};
  bool operator==(const GrammarSource&) const = default;
};

// Grammar of the texts that a source allows. InputError if the source is invalid or unsupported.
Grammar::Node grammar_of(Grammar& grammar, const GrammarSource& source);

// Owner of a grammar: the tenant whose budget its memory is charged to, and the worker for masks
// that are too slow for an engine's thread.
struct GrammarOwner {
  std::string tenant = {};
  std::shared_ptr<GrammarMemory> memory = {};  // nullptr: unlimited
  std::weak_ptr<MaskWorker> worker = {};       // expired: the reader's thread computes all masks
};

// Failure for lack of memory: a budget of GrammarMemory is exhausted, or an allocation failed.
class GrammarMemoryError : public Error {
 public:
  explicit GrammarMemoryError(GrammarMemory::ChargeResult why);
  // kShareIsFull also if the cause is not known.
  GrammarMemory::ChargeResult why() const { return why_; }

 private:
  GrammarMemory::ChargeResult why_;
};

class CompiledGrammar final : public TextRule,
                              public std::enable_shared_from_this<CompiledGrammar> {
 public:
  // InputError if the source is invalid, unsupported, too ambiguous or above the limits, or if no
  // token of the vocabulary can begin a text. GrammarMemoryError if the owner's memory budget is
  // exhausted.
  static std::shared_ptr<const CompiledGrammar> compile(const GrammarSource& source,
                                                        std::shared_ptr<const TokenTrie> trie,
                                                        const GrammarLimits& limits = {},
                                                        GrammarOwner owner = {});

  // If every single byte is a token, a completion reaches max_tokens before its end only if even
  // the grammar's shortest text has more than max_tokens bytes. The reader ends a completion early,
  // with kEnded, if its masks exceed a work limit.
  std::unique_ptr<RuleReader> begin(std::vector<int32_t> stop_token_ids, int64_t max_tokens,
                                    std::shared_ptr<MaskPace> pace = {}) const override;
  const PushdownAutomaton& automaton() const { return automaton_; }
  int64_t bytes() const { return bytes_; }  // charged to the owner

 private:
  friend class GrammarReader;
  friend struct MaskJob;
  // Position of a reader in its text. Survives forget(): the state is found again from the last
  // saved one by reading the text since then.
  struct ReadPosition {
    int32_t state = 0;                                          // valid if `epoch` is epoch_
    uint64_t epoch = ~uint64_t{0};                              // epoch_ when `state` was found
    std::shared_ptr<const GrammarStates::Snapshot> saved = {};  // nullptr: start of the text
    std::string text = {};                                      // read since `saved`
    int64_t work = 0;  // spent on its masks so far (TokenMasks::work())
  };
  // Result of reading to a position.
  struct Found {
    bool whole = false;         // the text may end there
    bool can_continue = false;  // a further token is allowed
    bool gave_up = false;       // unknown: the work limit was exceeded
    bool lacks_memory = false;  // unknown: no memory
  };
  CompiledGrammar(PushdownAutomaton automaton, std::shared_ptr<const TokenTrie> trie,
                  GrammarOwner owner);
  void prepare();
  bool charge(int64_t bytes) const;
  // Advances a position by `bytes` and sets the bits of the tokens allowed next in `mask`, which
  // must be zero. The completion may have tokens_left further tokens.
  Found read(ReadPosition& position, std::string_view bytes, int64_t tokens_left,
             std::span<uint32_t> mask) const;
  // Like read(), but for an engine's thread. nullopt if that would cost more than `work`, if
  // another thread is using the grammar, or if cached states must be dropped first; `position` is
  // then where it was, and `mask` is zero. Reduces `work` by the cost, also of a failed attempt.
  std::optional<Found> try_read(ReadPosition& position, std::string_view bytes, int64_t tokens_left,
                                std::span<uint32_t> mask, int64_t& work) const;
  Found read_locked(ReadPosition& position, std::string_view bytes, int64_t tokens_left,
                    std::span<uint32_t> mask, int64_t work) const;
  void forget() const noexcept;
  void save(ReadPosition& position) const;
  bool step(ReadPosition& position, std::string_view bytes) const;

  PushdownAutomaton automaton_;
  std::shared_ptr<const TokenTrie> trie_;
  std::weak_ptr<MaskWorker> worker_;
  int64_t automaton_bytes_ = 0;
  mutable std::atomic<int64_t> bytes_{0};
  mutable std::mutex mutex_;  // guards those below
  mutable GrammarCharge charge_;
  mutable TokenMasks masks_;
  mutable uint64_t epoch_ = 0;  // calls of forget()
};

}  // namespace trireme
