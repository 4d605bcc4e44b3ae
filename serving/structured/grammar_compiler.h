// Grammar compiler with its own threads and a cache of recently used grammars, so that neither the
// engine nor other requests wait for a slow compilation. Tenants (API keys) are served in turn. If
// there are several threads, one key occupies at most all but one; requests without a key may
// occupy all. A compiled grammar is cached only for its tenant, and its memory is charged to that
// tenant (grammar_memory.h).
#pragma once

#include <condition_variable>
#include <functional>
#include <list>
#include <map>
#include <thread>

#include "engine/core/fair_queue.h"
#include "serving/structured/compiled_grammar.h"

namespace trireme {

struct GrammarCompilerConfig {
  GrammarLimits limits = {};
  int threads = 2;
  // Maximum bytes of cached grammars and their sources; the latest grammar is cached in any case.
  int64_t kept_bytes = int64_t{256} << 20;
  int64_t live_bytes = int64_t{1} << 30;  // maximum bytes of all grammars, in use or cached
};

struct GrammarRefusal {
  enum class Kind {
    kInvalid,       // the source is invalid, unsupported or too expensive
    kShareIsFull,   // no memory left in the tenant's share, or not known which budget is full
    kMemoryIsFull,  // no memory left for any grammar, or an allocation failed
  };
  Kind kind = Kind::kInvalid;
  std::string message = {};
};

class GrammarCompiler {
 public:
  explicit GrammarCompiler(std::shared_ptr<const TokenTrie> trie,
                           const GrammarCompilerConfig& config = {});
  ~GrammarCompiler();  // drops jobs that have not started, without calling `done`
  GrammarCompiler(const GrammarCompiler&) = delete;
  GrammarCompiler& operator=(const GrammarCompiler&) = delete;

  // Compiles a grammar for a tenant. done: receives the rule, or nullptr and the refusal. It is
  // called from compile() itself if the rule is cached, else on a compiler thread; at most once; it
  // must not throw. wanted: returns false once no client waits; such jobs are dropped without
  // calling `done`. `wanted` may be called on any thread, also with the compiler's lock held, so it
  // must not call the compiler.
  using Done = std::function<void(std::shared_ptr<const TextRule>, const GrammarRefusal& refusal)>;
  using Wanted = std::function<bool()>;
  void compile(const std::string& tenant, GrammarSource source, const Done& done, Wanted wanted);

  struct Counts {
    int64_t waiting = 0;     // jobs not started
    int64_t live_bytes = 0;  // bytes of all grammars
    int64_t masks = 0;       // jobs that the mask worker has run (MaskWorker::done())
  };
  Counts counts() const;

 private:
  struct Kept {
    std::string tenant;
    GrammarSource source;
    std::shared_ptr<const CompiledGrammar> grammar;
  };
  struct Job {
    std::string tenant;
    GrammarSource source;
    Done done;
    Wanted wanted;
  };
  std::shared_ptr<const CompiledGrammar> find(const std::string& tenant,
                                              const GrammarSource& source);
  void keep(const std::string& tenant, GrammarSource source,
            const std::shared_ptr<const CompiledGrammar>& grammar);
  bool evict(const std::string* tenant);
  struct Outcome {
    std::shared_ptr<const CompiledGrammar> grammar;
    GrammarRefusal refusal;  // if grammar is nullptr
  };
  Outcome outcome_of(Job& job);  // throws only std::bad_alloc
  void work();
  void run(Job& job);

  std::shared_ptr<const TokenTrie> trie_;
  const GrammarCompilerConfig config_;
  std::shared_ptr<GrammarMemory> memory_;
  std::shared_ptr<MaskWorker> masks_ = std::make_shared<MaskWorker>();
  mutable std::mutex mutex_;  // guards those below
  std::condition_variable wake_;
  bool stop_ = false;
  FairQueue<Job> jobs_;
  std::map<std::string, int> running_;  // jobs running, by every tenant so far
  std::list<Kept> kept_;                // cache, last used first
  std::vector<std::thread> threads_;
};

}  // namespace trireme
