#include "serving/structured/compiled_grammar.h"

#include <algorithm>
#include <new>
#include <tuple>

#include "engine/core/heap_bytes.h"
#include "serving/structured/json_schema_grammar.h"
#include "serving/structured/regex_grammar.h"
#include "serving/structured/tool_format.h"
#include "serving/structured/written_grammar.h"

namespace trireme {
namespace {

// Work of prepare(), about a fifth of a second; the rest is computed when first needed.
constexpr int64_t kWorkOfPreparing = int64_t{1} << 25;
// Work on all masks of one completion (TokenMasks::work), about a second; beyond it the completion
// ends.
constexpr int64_t kMaxWorkOfAText = 8 * TokenMasks::kMaxWork;
// Bytes after which the state is saved again; bounds what is read again after forget().
constexpr size_t kMaxTextSinceSaved = 4096;

int64_t bytes_of(const PushdownAutomaton& automaton) {
  int64_t bytes = heap_bytes(automaton.states()) +
                  heap_block_bytes(automaton.states().size() * sizeof(int64_t));  // bytes_to_end()
  for (const PushdownAutomaton::State& state : automaton.states())
    bytes += heap_bytes(state.edges) + heap_bytes(state.calls);
  return bytes;
}

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

GrammarMemoryError::GrammarMemoryError(GrammarMemory::ChargeResult why)
    : Error(
          "grammar memory is full: schemas, expressions and grammars of running requests use all "
          "of it"),
      why_(why) {}

// Mask that a reader waits for. Shared by reader and worker.
struct MaskJob final : MaskWork {
  MaskJob(std::shared_ptr<const CompiledGrammar> of, CompiledGrammar::ReadPosition from,
          std::string_view read, int64_t tokens, std::vector<uint32_t> room,
          std::shared_ptr<MaskPace> of_reader)
      : grammar(std::move(of)),
        position(std::move(from)),
        bytes(read),
        tokens_left(tokens),
        mask(std::move(room)),
        pace(std::move(of_reader)) {}

  const std::shared_ptr<const CompiledGrammar> grammar;
  CompiledGrammar::ReadPosition position;
  const std::string bytes;
  const int64_t tokens_left;
  std::vector<uint32_t> mask;
  const std::shared_ptr<MaskPace> pace;
  CompiledGrammar::Found found = {};
  std::atomic<bool> done{false};  // true: the reader owns all of the above again
  std::atomic<bool> wanted{true};

  void run() override {
    if (!wanted) return;
    found = grammar->read(position, bytes, tokens_left, mask);
    notify();
  }
  void refuse() override {
    found = {.lacks_memory = true};
    notify();
  }

 private:
  void notify() {
    done = true;
    pace->notify();
  }
};

// Reader of one completion.
class GrammarReader final : public RuleReader {
 public:
  GrammarReader(std::shared_ptr<const CompiledGrammar> grammar, std::vector<int32_t> stop_token_ids,
                int64_t max_tokens, std::shared_ptr<MaskPace> pace)
      : grammar_(std::move(grammar)),
        stop_token_ids_(std::move(stop_token_ids)),
        tokens_left_(max_tokens),
        pace_(std::move(pace)),
        mask_(static_cast<size_t>(grammar_->trie_->words())) {
    if (pace_ == nullptr) advance({});
  }
  ~GrammarReader() override {
    if (job_ != nullptr) job_->wanted = false;
  }
  GrammarReader(const GrammarReader&) = default;  // only while no job is pending
  GrammarReader& operator=(const GrammarReader&) = delete;

  State state() override {
    if (state_ != State::kPending) return state_;
    if (job_ == nullptr)
      advance({});  // the first mask
    else if (job_->done)
      collect();
    return state_;
  }
  std::span<const uint32_t> mask() const override { return mask_; }
  bool is_whole() const override { return whole_; }
  State accept(std::span<const int32_t> ids) override {
    try {
      std::string bytes;
      for (const int32_t id : ids) {
        const std::string_view of_token = grammar_->trie_->bytes(id);
        if (of_token.empty()) return state_ = State::kEnded;
        bytes += of_token;
      }
      tokens_left_ -= std::ssize(ids);
      advance(bytes);
    } catch (const std::bad_alloc&) {
      state_ = State::kRefused;
    }
    return state_;
  }
  size_t look_ahead(std::span<const int32_t> ids, std::vector<uint32_t>& masks) override {
    size_t count = 0;
    try {
      look_further(ids, masks, count);
    } catch (const std::bad_alloc&) {  // `count` and `masks` are valid as far as they got
    }
    return count;
  }

 private:
  void look_further(std::span<const int32_t> ids, std::vector<uint32_t>& masks, size_t& count) {
    GrammarReader ahead(*this);
    for (const int32_t id : ids) {
      const bool allowed = id >= 0 && id < grammar_->trie_->ids() &&
                           (ahead.mask_[static_cast<size_t>(id) / 32] >> (id % 32) & 1) != 0;
      const std::string_view bytes = grammar_->trie_->bytes(id);
      if (!allowed || bytes.empty()) break;
      --ahead.tokens_left_;
      if (!ahead.advance_here(bytes) || ahead.state_ != State::kOpen) break;
      masks.insert(masks.end(), ahead.mask_.begin(), ahead.mask_.end());
      ++count;
    }
    position_.work = ahead.position_.work;  // charged even if the draft tokens are rejected
  }
  void advance(std::string_view bytes) {
    try {
      begin_mask(bytes);
    } catch (const std::bad_alloc&) {
      job_.reset();  // it has not been submitted
      state_ = State::kRefused;
    }
  }
  void begin_mask(std::string_view bytes) {
    if (advance_here(bytes)) return;
    const auto worker = grammar_->worker_.lock();
    if (worker == nullptr) return settle(grammar_->read(position_, bytes, tokens_left_, mask_));
    job_ = std::make_shared<MaskJob>(grammar_, std::move(position_), bytes, tokens_left_,
                                     std::move(mask_), pace_);
    state_ = State::kPending;
    worker->submit(grammar_->charge_.tenant(), job_->position.work, job_);
  }
  // False: too slow for this thread.
  bool advance_here(std::string_view bytes) {
    std::ranges::fill(mask_, 0);
    if (pace_ == nullptr) {
      settle(grammar_->read(position_, bytes, tokens_left_, mask_));
      return true;
    }
    const auto found = grammar_->try_read(position_, bytes, tokens_left_, mask_, pace_->left);
    if (found) settle(*found);
    return found.has_value();
  }
  void collect() {
    position_ = std::move(job_->position);
    mask_ = std::move(job_->mask);
    settle(job_->found);
    job_.reset();
  }
  void settle(const CompiledGrammar::Found& found) {
    whole_ = found.whole;
    if (whole_)
      for (const int32_t id : stop_token_ids_)
        if (id >= 0 && id < grammar_->trie_->ids())
          mask_[static_cast<size_t>(id) / 32] |= 1u << (id % 32);
    state_ = found.lacks_memory   ? State::kRefused
             : found.can_continue ? State::kOpen
                                  : State::kEnded;
  }

  std::shared_ptr<const CompiledGrammar> grammar_;
  std::vector<int32_t> stop_token_ids_;
  int64_t tokens_left_;
  std::shared_ptr<MaskPace> pace_;
  CompiledGrammar::ReadPosition position_;
  bool whole_ = false;
  State state_ = State::kPending;
  std::vector<uint32_t> mask_;
  std::shared_ptr<MaskJob> job_;  // that kPending waits for; nullptr: first mask not started
};

CompiledGrammar::CompiledGrammar(PushdownAutomaton automaton, std::shared_ptr<const TokenTrie> trie,
                                 GrammarOwner owner)
    : automaton_(std::move(automaton)),
      trie_(std::move(trie)),
      worker_(std::move(owner.worker)),
      automaton_bytes_(bytes_of(automaton_)),
      charge_(std::move(owner.memory), std::move(owner.tenant)),
      masks_(automaton_, *trie_, TokenMasks::kMaxWork,
             [this](int64_t bytes) { return charge(bytes); }) {
  const GrammarMemory::ChargeResult result = charge_.set(automaton_bytes_);
  if (result != GrammarMemory::ChargeResult::kCharged) throw GrammarMemoryError(result);
  bytes_ = automaton_bytes_;
}

std::shared_ptr<const CompiledGrammar> CompiledGrammar::compile(
    const GrammarSource& source, std::shared_ptr<const TokenTrie> trie, const GrammarLimits& limits,
    GrammarOwner owner) {
  CompileBudget budget(limits);
  Grammar grammar(budget);
  const Grammar::Node text = grammar_of(grammar, source);
  const int32_t root = grammar.add_rule();
  grammar.define(root, text);
  PushdownAutomaton automaton(grammar, root, budget);
  const std::shared_ptr<CompiledGrammar> made(
      new CompiledGrammar(std::move(automaton), std::move(trie), std::move(owner)));
  made->prepare();
  return made;
}

void CompiledGrammar::prepare() {
  std::vector<uint32_t> mask(static_cast<size_t>(trie_->words()));
  ReadPosition position;
  const bool prepared = masks_.prepare(kWorkOfPreparing);
  Found found{.gave_up = !prepared};
  if (prepared) found = read(position, {}, kNeverEnds, mask);
  // Which bound it was is unknown; a tenant's share is never larger than the memory of all.
  if (found.lacks_memory) throw GrammarMemoryError(GrammarMemory::ChargeResult::kShareIsFull);
  if (found.gave_up)
    fail_input(
        "a token mask of the constraint exceeds the work limit: make it less ambiguous or shorter");
  if (!found.can_continue)
    fail_input("no token of this model begins a text that satisfies the constraint");
}

std::unique_ptr<RuleReader> CompiledGrammar::begin(std::vector<int32_t> stop_token_ids,
                                                   int64_t max_tokens,
                                                   std::shared_ptr<MaskPace> pace) const {
  return std::make_unique<GrammarReader>(shared_from_this(), std::move(stop_token_ids), max_tokens,
                                         std::move(pace));
}

bool CompiledGrammar::charge(int64_t bytes) const {
  if (charge_.set(automaton_bytes_ + bytes) != GrammarMemory::ChargeResult::kCharged) return false;
  bytes_ = automaton_bytes_ + bytes;
  return true;
}

bool CompiledGrammar::step(ReadPosition& position, std::string_view bytes) const {
  for (const char byte : bytes) {
    if (position.state == GrammarStates::kDead) return false;
    position.state = masks_.step(position.state, static_cast<uint8_t>(byte));
  }
  return position.state != GrammarStates::kDead;
}

void CompiledGrammar::forget() const noexcept {
  masks_.clear();
  ++epoch_;
}

// Saves the state of a text if much has been read since the last saved one.
void CompiledGrammar::save(ReadPosition& position) const {
  if (position.epoch != epoch_ || position.text.size() < kMaxTextSinceSaved ||
      position.state == GrammarStates::kDead)
    return;
  position.saved = std::make_shared<GrammarStates::Snapshot>(masks_.states().save(position.state));
  position.text.clear();
}

CompiledGrammar::Found CompiledGrammar::read(ReadPosition& position, std::string_view bytes,
                                             int64_t tokens_left, std::span<uint32_t> mask) const {
  const std::lock_guard lock(mutex_);
  try {
    save(position);
    if (masks_.is_full()) forget();
    const size_t before = position.text.size();
    const Found found = read_locked(position, bytes, tokens_left, mask, TokenMasks::kMaxWork);
    if (!found.lacks_memory) return found;
    // Retries without the cached states and masks.
    forget();
    position.text.resize(before);
    std::ranges::fill(mask, 0);
    return read_locked(position, bytes, tokens_left, mask, TokenMasks::kMaxWork);
  } catch (const std::exception&) {  // std::bad_alloc: cached states may be incomplete
    forget();
    return {.lacks_memory = true};
  }
}

std::optional<CompiledGrammar::Found> CompiledGrammar::try_read(ReadPosition& position,
                                                                std::string_view bytes,
                                                                int64_t tokens_left,
                                                                std::span<uint32_t> mask,
                                                                int64_t& work) const {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock() || masks_.is_full()) return {};
  const auto [state, epoch, spent] = std::tuple(position.state, position.epoch, position.work);
  size_t before = position.text.size();
  try {
    save(position);
    before = position.text.size();
    const Found found = read_locked(position, bytes, tokens_left, mask, std::max(work, int64_t{0}));
    work -= masks_.work();
    if (!found.gave_up) return found;
  } catch (const std::exception&) {
    forget();
  }
  position.text.resize(before);
  std::tie(position.state, position.epoch, position.work) = std::tuple(state, epoch, spent);
  std::ranges::fill(mask, 0);
  return {};
}

CompiledGrammar::Found CompiledGrammar::read_locked(ReadPosition& position, std::string_view bytes,
                                                    int64_t tokens_left, std::span<uint32_t> mask,
                                                    int64_t work) const {
  masks_.begin(work);
  if (position.epoch != epoch_) {
    position.epoch = epoch_;
    position.state = position.saved != nullptr ? masks_.restore(*position.saved)
                                               : masks_.states().at(automaton_.root());
    step(position, position.text);
  }
  const int64_t before = masks_.work();  // reading forgotten text again is not charged to it
  position.text += bytes;
  Found found;
  if (step(position, bytes)) {
    found.whole = masks_.states().is_whole(position.state);
    // After the next token as many bytes may be missing as tokens are left: in most vocabularies
    // every byte is a token.
    found.can_continue = masks_.add(position.state, tokens_left - 1, mask);
  }
  found.gave_up = masks_.gave_up();
  found.lacks_memory = masks_.lacks_memory();
  position.work += masks_.work() - before;
  if (found.gave_up || position.work > kMaxWorkOfAText) found.can_continue = false;
  return found;
}

}  // namespace trireme
