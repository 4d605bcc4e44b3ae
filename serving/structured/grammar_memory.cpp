#include "serving/structured/grammar_memory.h"

#include "engine/core/fair_queue.h"

namespace trireme {

void GrammarMemory::set_evict(Evict evict) {
  const std::lock_guard lock(evicts_);
  evict_ = std::move(evict);
}

// Evicts a grammar of the tenant, else, with `others`, of any tenant.
bool GrammarMemory::evict(const std::string& tenant, bool others) {
  const std::lock_guard lock(evicts_);
  return evict_ && (evict_(&tenant) || (others && evict_(nullptr)));
}

// True if `bytes` would fit into the tenant's share with only one other tenant active.
bool GrammarMemory::others_narrow_share_of(const std::string& tenant, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto at = of_tenant_.find(tenant);
  const int64_t own = at == of_tenant_.end() ? 0 : at->second;
  const size_t active = of_tenant_.size() + (own == 0 ? 1 : 0);
  return active > 2 && bytes <= tenant_share(bytes_, tenant, 2) - own;
}

GrammarMemory::ChargeResult GrammarMemory::charge(const std::string& tenant, int64_t bytes) {
  for (;;) {
    const ChargeResult result = try_charge(tenant, bytes);
    if (result == ChargeResult::kCharged) return result;
    if (!evict(tenant, result == ChargeResult::kAllIsFull || others_narrow_share_of(tenant, bytes)))
      return result;
  }
}

GrammarMemory::ChargeResult GrammarMemory::try_charge(const std::string& tenant, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto at = of_tenant_.find(tenant);
  const int64_t own = at == of_tenant_.end() ? 0 : at->second;
  const auto active = std::ssize(of_tenant_) + (own == 0 ? 1 : 0);
  if (bytes > tenant_share(bytes_, tenant, active) - own) return ChargeResult::kShareIsFull;
  if (bytes > bytes_ - used_) return ChargeResult::kAllIsFull;
  if (at == of_tenant_.end())
    of_tenant_.emplace(tenant, bytes);
  else
    at->second += bytes;
  used_ += bytes;
  return ChargeResult::kCharged;
}

void GrammarMemory::release(const std::string& tenant, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  used_ -= bytes;
  const auto at = of_tenant_.find(tenant);
  at->second -= bytes;
  if (at->second == 0) of_tenant_.erase(at);
}

int64_t GrammarMemory::used() const {
  const std::lock_guard lock(mutex_);
  return used_;
}

GrammarMemory::ChargeResult GrammarCharge::set(int64_t bytes) {
  auto result = GrammarMemory::ChargeResult::kCharged;
  if (memory_ != nullptr && bytes > bytes_) result = memory_->charge(tenant_, bytes - bytes_);
  if (memory_ != nullptr && bytes < bytes_) memory_->release(tenant_, bytes_ - bytes);
  if (result == GrammarMemory::ChargeResult::kCharged) bytes_ = bytes;
  return result;
}

}  // namespace trireme
