// Byte budget of all live grammars: automata, states and masks, in use or cached. An automaton is
// charged when it has been built, states and masks as they grow (token_masks.h). All of it is
// released with the last user of the grammar. Each tenant (API key) has a share of the budget
// (tenant_share() in engine/core/fair_queue.h). Thread-safe.
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
  // Failures: the bytes do not fit into the tenant's share, or not into the whole budget.
  enum class ChargeResult { kCharged, kShareIsFull, kAllIsFull };
  // Drops one cached grammar that no request uses: of that tenant; nullptr: of any. False: there is
  // none.
  using Evict = std::function<bool(const std::string* tenant)>;

  explicit GrammarMemory(int64_t bytes) : bytes_(bytes) {}
  GrammarMemory(const GrammarMemory&) = delete;
  GrammarMemory& operator=(const GrammarMemory&) = delete;

  // Sets the callback that frees memory when it is short. The callback may call release(), but not
  // charge() or set_evict().
  void set_evict(Evict evict);
  // Charges `bytes`. If memory is short, first evicts cached grammars one by one until the bytes
  // fit: the tenant's own, then those of other tenants. The latter only if the whole budget is
  // full, or if the tenant's share would suffice with fewer tenants.
  ChargeResult charge(const std::string& tenant, int64_t bytes);
  void release(const std::string& tenant, int64_t bytes);
  int64_t used() const;

 private:
  ChargeResult try_charge(const std::string& tenant, int64_t bytes);

  bool evict(const std::string& tenant, bool others);
  bool others_narrow_share_of(const std::string& tenant, int64_t bytes);

  const int64_t bytes_;
  std::mutex evicts_;  // guards evict_
  Evict evict_;
  mutable std::mutex mutex_;  // guards those below
  int64_t used_ = 0;
  std::map<std::string, int64_t> of_tenant_;
};

// Bytes that one grammar has charged to the budget; released on destruction. Not thread-safe.
class GrammarCharge {
 public:
  // memory: the budget; nullptr if unlimited.
  GrammarCharge(std::shared_ptr<GrammarMemory> memory, std::string tenant)
      : memory_(std::move(memory)), tenant_(std::move(tenant)) {}
  ~GrammarCharge() { (void)set(0); }
  GrammarCharge(const GrammarCharge&) = delete;
  GrammarCharge& operator=(const GrammarCharge&) = delete;

  // Changes the total charge to `bytes`; if refused, the previous charge stays. A decrease is never
  // refused.
  GrammarMemory::ChargeResult set(int64_t bytes);
  const std::string& tenant() const { return tenant_; }

 private:
  std::shared_ptr<GrammarMemory> memory_;
  std::string tenant_;
  int64_t bytes_ = 0;
};

}  // namespace trireme
