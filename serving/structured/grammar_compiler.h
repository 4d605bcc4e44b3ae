// Compiles grammars on threads of its own and keeps those that were used last: neither the engine nor other requests
// wait for one that is hard, or meant to be.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <list>
#include <thread>

#include "serving/structured/compiled_grammar.h"

namespace trireme {

class GrammarCompiler {
 public:
  // bytes: what the grammars that are kept take at most.
  GrammarCompiler(std::shared_ptr<const TokenTrie> trie, const GrammarLimits& limits = {},
                  int threads = 2, int64_t bytes = int64_t{256} << 20);
  ~GrammarCompiler();  // jobs that have not begun are not done
  GrammarCompiler(const GrammarCompiler&) = delete;
  GrammarCompiler& operator=(const GrammarCompiler&) = delete;

  // The rule, or why there is none. Called once, here where it is known already, else on a thread of the compiler's;
  // it must not throw. wanted: whether anybody still waits for it; what nobody does is not compiled.
  using Done = std::function<void(std::shared_ptr<const TextRule>, const std::string& error)>;
  using Wanted = std::function<bool()>;
  void compile(GrammarSource source, const Done& done, Wanted wanted);

 private:
  struct Kept {
    GrammarSource source;
    std::shared_ptr<const CompiledGrammar> grammar;
  };
  struct Job {
    GrammarSource source;
    Done done;
    Wanted wanted;
  };
  std::shared_ptr<const CompiledGrammar> find(const GrammarSource& source);
  void keep(GrammarSource source, const std::shared_ptr<const CompiledGrammar>& grammar);
  void work();
  void run(GrammarSource& source, const Done& done);

  std::shared_ptr<const TokenTrie> trie_;
  GrammarLimits limits_;
  int64_t bytes_;
  std::mutex mutex_;  // of those below
  std::condition_variable wake_;
  bool stop_ = false;
  std::deque<Job> jobs_;
  std::list<Kept> kept_;  // the last used first
  std::vector<std::thread> threads_;
};

}  // namespace trireme
