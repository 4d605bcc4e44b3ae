#include "serving/structured/grammar_compiler.h"

#include <algorithm>

#include "engine/core/thread_name.h"

namespace trireme {
namespace {

constexpr size_t kMostKept = 256;  // looked through one after the other

int64_t bytes_of(const GrammarSource& source) {
  int64_t bytes = std::ssize(source.text) + std::ssize(source.tools);
  for (const std::string& choice : source.choices)
    bytes += std::ssize(choice) + int64_t{sizeof(std::string)};
  return bytes;
}

}  // namespace

GrammarCompiler::GrammarCompiler(std::shared_ptr<const TokenTrie> trie, const GrammarLimits& limits,
                                 int threads, int64_t bytes)
    : trie_(std::move(trie)), limits_(limits), bytes_(bytes) {
  for (int i = 0; i < threads; ++i)
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
}

void GrammarCompiler::compile(GrammarSource source, const Done& done, Wanted wanted) {
  std::shared_ptr<const CompiledGrammar> known;
  {
    const std::lock_guard lock(mutex_);
    known = find(source);
    if (known == nullptr) {
      // Clients that ask and leave would have jobs wait without end.
      std::erase_if(jobs_, [](const Job& job) { return !job.wanted(); });
      jobs_.push_back({std::move(source), done, std::move(wanted)});
    }
  }
  if (known != nullptr) return done(std::move(known), "");
  wake_.notify_one();
}

// With the lock held.
std::shared_ptr<const CompiledGrammar> GrammarCompiler::find(const GrammarSource& source) {
  const auto at = std::ranges::find(kept_, source, &Kept::source);
  if (at == kept_.end()) return nullptr;
  kept_.splice(kept_.begin(), kept_, at);
  return at->grammar;
}

void GrammarCompiler::keep(GrammarSource source,
                           const std::shared_ptr<const CompiledGrammar>& grammar) {
  const std::lock_guard lock(mutex_);
  kept_.push_front({std::move(source), grammar});
  // They grow with what is read with them.
  int64_t bytes = 0;
  size_t count = 0;
  for (auto at = kept_.begin(); at != kept_.end(); ++at) {
    bytes += at->grammar->bytes() + bytes_of(at->source);
    if (++count <= kMostKept && (bytes <= bytes_ || count == 1)) continue;
    kept_.erase(at, kept_.end());
    return;
  }
}

void GrammarCompiler::work() {
  for (;;) {
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [&] { return stop_ || !jobs_.empty(); });
    if (stop_) return;
    Job job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    if (job.wanted()) run(job.source, job.done);
  }
}

void GrammarCompiler::run(GrammarSource& source, const Done& done) {
  std::shared_ptr<const CompiledGrammar> grammar;
  {
    const std::lock_guard lock(mutex_);
    grammar = find(source);
  }
  if (grammar != nullptr) return done(std::move(grammar), "");
  try {
    grammar = CompiledGrammar::compile(source, trie_, limits_);
  } catch (const InputError& error) {
    return done(nullptr, error.what());
  } catch (const std::exception& error) {
    return done(nullptr, concat("it cannot be compiled: ", error.what()));
  }
  keep(std::move(source), grammar);
  done(std::move(grammar), "");
}

}  // namespace trireme
