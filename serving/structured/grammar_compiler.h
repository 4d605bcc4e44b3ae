// Compiles grammars on threads of its own and keeps those used last: neither the engine nor other
// requests wait for one that is hard. Tenants (API keys) are served in turn, and one of them takes
// all threads but one at most. What is compiled for a tenant is kept for that tenant alone, and its
// memory is charged to it (grammar_memory.h).
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
  int64_t kept_bytes = int64_t{256} << 20;  // of grammars that no request uses
  int64_t live_bytes = int64_t{1} << 30;    // of all grammars
};

struct GrammarRefusal {
  enum class Kind {
    kInvalid,       // the source is at fault
    kShareIsFull,   // the tenant's grammars in use leave no memory for it
    kMemoryIsFull,  // those of all do not
  };
  Kind kind = Kind::kInvalid;
  std::string message = {};
};

class GrammarCompiler {
 public:
  explicit GrammarCompiler(std::shared_ptr<const TokenTrie> trie,
                           const GrammarCompilerConfig& config = {});
  ~GrammarCompiler();  // jobs that have not begun are not done
  GrammarCompiler(const GrammarCompiler&) = delete;
  GrammarCompiler& operator=(const GrammarCompiler&) = delete;

  // The rule, or (nullptr) why there is none. Called once, from compile() where the rule is kept,
  // else on a thread of the compiler's; it must not throw. wanted: whether anybody still waits;
  // what nobody waits for is not compiled.
  using Done = std::function<void(std::shared_ptr<const TextRule>, const GrammarRefusal& refusal)>;
  using Wanted = std::function<bool()>;
  void compile(const std::string& tenant, GrammarSource source, const Done& done, Wanted wanted);

  struct Counts {
    int64_t waiting = 0;     // jobs
    int64_t live_bytes = 0;  // of all grammars
    int64_t masks = 0;       // made by the worker so far
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
    GrammarRefusal refusal;  // where there is none
  };
  Outcome outcome_of(Job& job);  // throws std::bad_alloc alone
  void work();
  void run(Job& job);

  std::shared_ptr<const TokenTrie> trie_;
  const GrammarCompilerConfig config_;
  std::shared_ptr<GrammarMemory> memory_;
  std::shared_ptr<MaskWorker> masks_ = std::make_shared<MaskWorker>();
  mutable std::mutex mutex_;  // of those below
  std::condition_variable wake_;
  bool stop_ = false;
  FairQueue<Job> jobs_;
  std::map<std::string, int> running_;  // jobs, by tenant that ever had one
  std::list<Kept> kept_;                // the last used first
  std::vector<std::thread> threads_;
};

}  // namespace trireme
