// Byte budget of all live grammars: automata, states and masks, in use or cached. Charged before
// memory is allocated and released with the last user of a grammar. Each tenant (API key) has a
// share of it (tenant_share). Thread-safe.
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
  enum class ChargeResult { kCharged, kShareIsFull, kAllIsFull };
  // Drops one cached grammar that no request uses: of that tenant; nullptr: of any. False: there is
  // none.
  using Evict = std::function<bool(const std::string* tenant)>;

  explicit GrammarMemory(int64_t bytes) : bytes_(bytes) {}
  GrammarMemory(const GrammarMemory&) = delete;
  GrammarMemory& operator=(const GrammarMemory&) = delete;

  // Sets the callback that frees memory when it is short. It may call release(), but not charge().
  void set_evict(Evict evict);
  // Charges `bytes`. If memory is short, first evicts cached grammars: the tenant's own, then other
  // tenants' if the whole budget is full or if their shares narrow the tenant's.
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
  // memory: nullptr: unlimited.
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
