// Queue that serves tenants round robin: before each of its own jobs, a tenant waits for at most
// one job of every other tenant, however many jobs those have queued. Time in which pop_if() admits
// none of the tenant's jobs does not count. The jobs of a tenant are ordered by rank, lowest first,
// then by age, oldest first. Not thread-safe.
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

// Share of `limit`, rounded down, for one tenant while `active` tenants, this one included, hold or
// want part of it. A single tenant gets half, so that there is room for a second one. The tenant ""
// (no API keys) is always the only one and gets all of it.
inline int64_t tenant_share(int64_t limit, const std::string& tenant, int64_t active) {
  return tenant.empty() ? limit : limit / std::max<int64_t>(active, 2);
}

template <class Job>
class FairQueue {
 public:
  using Ticket = uint64_t;  // starts at 1

  Ticket push(const std::string& tenant, Job job, int64_t rank = 0) {
    const auto own = jobs_.try_emplace(tenant).first;
    std::deque<Entry>& entries = own->second;
    try {
      if (entries.empty()) turns_.push_back(tenant);
      auto at = entries.end();
      while (at != entries.begin() && std::prev(at)->rank > rank) --at;
      entries.insert(at, Entry{++last_, rank, std::move(job)});
    } catch (...) {  // out of memory: the queue stays unchanged
      drop_if_empty(own);
      throw;
    }
    ++size_;
    return last_;
  }

  // Pops the first job, in order of service, for which may_run(tenant, job) holds; nullopt if none.
  // A tenant that was skipped keeps its turn.
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

  // Removes a queued job; nullopt if it was already popped or erased.
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
  int64_t tenants() const { return static_cast<int64_t>(jobs_.size()); }  // with queued jobs

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

  Jobs jobs_;                     // by tenant, only tenants with jobs; each in order of service
  std::list<std::string> turns_;  // the same tenants, next one first
  int64_t size_ = 0;
  Ticket last_ = 0;
};

}  // namespace trireme
