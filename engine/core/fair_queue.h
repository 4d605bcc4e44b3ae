// Queue that serves tenants in turn (round robin): however many jobs one tenant has waiting,
// another waits for one of them at most before each of its own. Of one tenant the job of the lowest
// rank comes first, of equal ones the oldest. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <iterator>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <utility>

namespace trireme {

// Share of `limit` that a tenant may hold while `active` tenants hold or want some of it. Half of
// it is left to a tenant that may come. The tenant "" (no API keys) has no others beside it.
inline int64_t tenant_share(int64_t limit, const std::string& tenant, int64_t active) {
  return tenant.empty() ? limit : limit / std::max<int64_t>(active, 2);
}

template <class Job>
class FairQueue {
 public:
  using Ticket = uint64_t;  // from 1 on

  Ticket push(const std::string& tenant, Job job, int64_t rank = 0) {
    const auto own = jobs_.try_emplace(tenant).first;
    std::deque<Entry>& entries = own->second;
    try {
      if (entries.empty()) turns_.push_back(tenant);
      auto at = entries.end();
      while (at != entries.begin() && std::prev(at)->rank > rank) --at;
      entries.insert(at, Entry{++last_, rank, std::move(job)});
    } catch (...) {  // want of memory: the queue is as it was
      drop_if_empty(own);
      throw;
    }
    ++size_;
    return last_;
  }

  // The first job of the next tenant for which may_run(tenant, job) holds; empty: there is none.
  template <class MayRun>
  std::optional<Job> pop_if(MayRun&& may_run) {
    for (auto turn = turns_.begin(); turn != turns_.end(); ++turn) {
      const auto at = jobs_.find(*turn);
      const auto entry = std::ranges::find_if(
          at->second, [&](const Entry& one) { return may_run(at->first, std::as_const(one.job)); });
      if (entry == at->second.end()) continue;
      std::optional<Job> job(std::move(entry->job));
      at->second.erase(entry);
      --size_;
      turns_.splice(turns_.end(), turns_, turn);
      drop_if_empty(at);
      return job;
    }
    return {};
  }
  std::optional<Job> pop() {
    return pop_if([](const std::string&, const Job&) { return true; });
  }

  // Empty: it has been popped.
  std::optional<Job> withdraw(const std::string& tenant, Ticket ticket) {
    const auto at = jobs_.find(tenant);
    if (at == jobs_.end()) return {};
    const auto entry = std::ranges::find(at->second, ticket, &Entry::ticket);
    if (entry == at->second.end()) return {};
    std::optional<Job> job(std::move(entry->job));
    at->second.erase(entry);
    --size_;
    drop_if_empty(at);
    return job;
  }

  template <class Unwanted>
  void erase_if(Unwanted&& unwanted) {
    for (auto at = jobs_.begin(); at != jobs_.end();) {
      size_ -= static_cast<int64_t>(
          std::erase_if(at->second, [&](const Entry& entry) { return unwanted(entry.job); }));
      drop_if_empty(at++);
    }
  }

  int64_t size() const { return size_; }
  int64_t tenants() const { return static_cast<int64_t>(jobs_.size()); }

 private:
  struct Entry {
    Ticket ticket = 0;
    int64_t rank = 0;
    Job job;
  };
  using Jobs = std::map<std::string, std::deque<Entry>>;
  void drop_if_empty(typename Jobs::iterator at) {
    if (!at->second.empty()) return;
    turns_.remove(at->first);
    jobs_.erase(at);
  }

  Jobs jobs_;                     // of each tenant that has any, in the order in which they come
  std::list<std::string> turns_;  // of these tenants, the next one first
  int64_t size_ = 0;
  Ticket last_ = 0;
};

}  // namespace trireme
