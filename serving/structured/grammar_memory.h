// Byte budget of all live grammars: automata, states and masks, whether requests use them or the
// cache keeps them. Charged before memory is taken and given back when the last user of a grammar
// is gone. Each tenant (API key) has a share of it (tenant_share). Any thread may use it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace trireme {

class GrammarMemory {
 public:
  enum class Answer { kTaken, kShareIsFull, kAllIsFull };
  // Drops one grammar that no request uses: of that tenant, or of any (nullptr). False: there is
  // none.
  using Evict = std::function<bool(const std::string* tenant)>;

  explicit GrammarMemory(int64_t bytes) : bytes_(bytes) {}
  GrammarMemory(const GrammarMemory&) = delete;
  GrammarMemory& operator=(const GrammarMemory&) = delete;

  // Called where memory is short; it may give back, and not take.
  void set_evict(Evict evict);
  Answer take(const std::string& tenant, int64_t bytes);
  void give_back(const std::string& tenant, int64_t bytes);
  int64_t used() const;

 private:
  Answer try_take(const std::string& tenant, int64_t bytes);

  bool evict(const std::string& tenant, bool others);
  bool others_narrow_share_of(const std::string& tenant, int64_t bytes);

  const int64_t bytes_;
  std::mutex evicts_;  // of evict_
  Evict evict_;
  mutable std::mutex mutex_;  // of those below
  int64_t used_ = 0;
  std::map<std::string, int64_t> of_tenant_;
};

// Bytes that one grammar holds of the budget; given back with it. One thread at a time.
class GrammarCharge {
 public:
  // memory: nullptr: no bound.
  GrammarCharge(std::shared_ptr<GrammarMemory> memory, std::string tenant)
      : memory_(std::move(memory)), tenant_(std::move(tenant)) {}
  ~GrammarCharge() { (void)set(0); }
  GrammarCharge(const GrammarCharge&) = delete;
  GrammarCharge& operator=(const GrammarCharge&) = delete;

  // To hold so many in all; where that is refused what was held before stays. Fewer are never
  // refused.
  GrammarMemory::Answer set(int64_t bytes);
  const std::string& tenant() const { return tenant_; }

 private:
  std::shared_ptr<GrammarMemory> memory_;
  std::string tenant_;
  int64_t bytes_ = 0;
};

}  // namespace trireme
