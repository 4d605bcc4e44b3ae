#include "serving/structured/grammar_compiler.h"

#include <algorithm>
#include <new>
#include <optional>

#include "engine/core/thread_name.h"

namespace trireme {
namespace {

constexpr size_t kMaxKept = 256;  // cache entries; lookup is linear
// Short enough for a std::string without heap memory.
constexpr const char* kNoMemory = "out of memory";

int64_t bytes_of(const GrammarSource& source) {
  int64_t bytes = std::ssize(source.text) + std::ssize(source.tools);
  for (const std::string& choice : source.choices)
    bytes += std::ssize(choice) + int64_t{sizeof(std::string)};
  return bytes;
}

}  // namespace

GrammarCompiler::GrammarCompiler(std::shared_ptr<const TokenTrie> trie,
                                 const GrammarCompilerConfig& config)
    : trie_(std::move(trie)),
      config_(config),
      memory_(std::make_shared<GrammarMemory>(config.live_bytes)) {
  memory_->set_evict([this](const std::string* tenant) { return evict(tenant); });
  for (int i = 0; i < config.threads; ++i)
    threads_.emplace_back([this, i] {
      name_thread("grammar", static_cast<size_t>(i));
      work();
    });
}

GrammarCompiler::~GrammarCompiler() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  masks_.reset();  // grammars still in use stop growing on its thread
  memory_->set_evict({});
}

void GrammarCompiler::compile(const std::string& tenant, GrammarSource source, const Done& done,
                              Wanted wanted) {
  std::shared_ptr<const CompiledGrammar> known;
  {
    const std::lock_guard lock(mutex_);
    known = find(tenant, source);
    if (known == nullptr) {
      // Clients that disconnect must not leave jobs in the queue.
      jobs_.erase_if([](const Job& job) { return !job.wanted(); });
      running_.try_emplace(tenant, 0);  // here, so that std::bad_alloc reaches the caller
      jobs_.push(tenant, {tenant, std::move(source), done, std::move(wanted)});
    }
  }
  if (known != nullptr) return done(std::move(known), {});
  wake_.notify_one();
}

GrammarCompiler::Counts GrammarCompiler::counts() const {
  Counts counts{.live_bytes = memory_->used(), .masks = masks_->done()};
  const std::lock_guard lock(mutex_);
  counts.waiting = jobs_.size();
  return counts;
}

// The caller holds the lock.
std::shared_ptr<const CompiledGrammar> GrammarCompiler::find(const std::string& tenant,
                                                             const GrammarSource& source) {
  const auto at = std::ranges::find_if(
      kept_, [&](const Kept& kept) { return kept.tenant == tenant && kept.source == source; });
  if (at == kept_.end()) return nullptr;
  kept_.splice(kept_.begin(), kept_, at);
  return at->grammar;
}

void GrammarCompiler::keep(const std::string& tenant, GrammarSource source,
                           const std::shared_ptr<const CompiledGrammar>& grammar) {
  std::list<Kept> dropped;  // freed after the lock is released
  const std::lock_guard lock(mutex_);
  kept_.push_front({tenant, std::move(source), grammar});
  // Sizes are read again: grammars grow as they are used.
  int64_t bytes = 0;
  size_t count = 0;
  for (auto at = kept_.begin(); at != kept_.end(); ++at) {
    bytes += at->grammar->bytes() + bytes_of(at->source);
    if (++count <= kMaxKept && (bytes <= config_.kept_bytes || count == 1)) continue;
    dropped.splice(dropped.end(), kept_, at, kept_.end());
    return;
  }
}

// Drops the least recently used grammar that no request uses.
bool GrammarCompiler::evict(const std::string* tenant) {
  std::list<Kept> dropped;
  const std::lock_guard lock(mutex_);
  const auto at = std::find_if(kept_.rbegin(), kept_.rend(), [&](const Kept& kept) {
    return kept.grammar.use_count() == 1 && (tenant == nullptr || kept.tenant == *tenant);
  });
  if (at == kept_.rend()) return false;
  dropped.splice(dropped.end(), kept_, std::next(at).base());
  return true;
}

void GrammarCompiler::work() {
  const int most = std::max(config_.threads - 1, 1);
  for (;;) {
    std::optional<Job> job;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] {
        if (stop_) return true;
        job = jobs_.pop_if([&](const std::string& tenant, const Job&) {
          const auto at = running_.find(tenant);
          return tenant.empty() || at->second < most;
        });
        return job.has_value();
      });
      if (!job) return;
      ++running_.find(job->tenant)->second;
    }
    if (job->wanted()) run(*job);
    {
      const std::lock_guard lock(mutex_);
      --running_.find(job->tenant)->second;
    }
    wake_.notify_one();  // for a job of this tenant that was passed over
  }
}

GrammarCompiler::Outcome GrammarCompiler::outcome_of(Job& job) {
  using Kind = GrammarRefusal::Kind;
  {
    const std::lock_guard lock(mutex_);
    if (auto known = find(job.tenant, job.source)) return {std::move(known), {}};
  }
  try {
    auto grammar =
        CompiledGrammar::compile(job.source, trie_, config_.limits, {job.tenant, memory_, masks_});
    keep(job.tenant, std::move(job.source), grammar);
    return {std::move(grammar), {}};
  } catch (const InputError& error) {
    return {nullptr, {Kind::kInvalid, error.what()}};
  } catch (const GrammarMemoryError& error) {
    const bool own = error.why() == GrammarMemory::ChargeResult::kShareIsFull;
    return {nullptr, {own ? Kind::kShareIsFull : Kind::kMemoryIsFull, error.what()}};
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    return {nullptr, {Kind::kInvalid, concat("the constraint cannot be compiled: ", error.what())}};
  }
}

void GrammarCompiler::run(Job& job) {
  Outcome outcome;
  try {
    outcome = outcome_of(job);
  } catch (const std::bad_alloc&) {  // from compiling, or from building an error message
    outcome.refusal = {GrammarRefusal::Kind::kMemoryIsFull, kNoMemory};
  }
  job.done(std::move(outcome.grammar), outcome.refusal);
}

}  // namespace trireme
