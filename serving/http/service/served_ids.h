// The ids that requests name: the model's, and those of adapters, which come and go where there is
// room for them.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "serving/api/small_bodies.h"

namespace trireme {

// What a request names. While somebody has the lease, the slot is no other adapter's.
struct ServedId {
  ModelCard card;
  uint64_t generation = 0;  // 0: the model alone; another one for each adapter that was ever served
  std::shared_ptr<const void> lease = {};
};

class ServedIds {
 public:
  // cards: those of the beginning. slots: adapters that there is room for; 0: none can come. freed:
  // of a slot that nobody has the lease of any more, before another adapter can have it; on any
  // thread, and never after this object's end.
  ServedIds(const std::vector<ModelCard>& cards, int64_t slots, std::function<void(int32_t)> freed);
  ~ServedIds();
  ServedIds(const ServedIds&) = delete;
  ServedIds& operator=(const ServedIds&) = delete;

  std::optional<ServedId> find(const std::string& id) const;
  std::vector<ModelCard> cards() const;
  std::string name_of(int32_t slot) const;  // of the adapter that was there last; "": none was
  int64_t slots() const { return slots_; }
  // Adapters that there is room for, or as many as are served from the beginning where none can
  // come.
  int64_t places() const { return std::ssize(in_slots_->all); }

  // A slot that nobody computes with, for a name that is free: ApiError (400, or 503 where all are
  // taken). It stays free until add(): one call of both at a time.
  int32_t free_slot(const std::string& name) const;
  // The card's id is served from now on, in the slot that it names.
  void add(const ModelCard& card);
  // Requests that have it already keep it. ApiError 404 where it is no adapter.
  void remove(const std::string& name);

 private:
  struct Slot {
    std::string name;  // of the last
    bool taken = false;
  };
  // Of which leases may be the last to know.
  struct Slots {
    std::mutex mutex;
    std::vector<Slot> all;
    std::function<void(int32_t)> freed;
  };
  class Lease;
  const int64_t slots_;
  std::shared_ptr<Slots> in_slots_ = std::make_shared<Slots>();
  mutable std::mutex mutex_;  // of all below; comes before that of the slots
  std::vector<ServedId> ids_;
  uint64_t generations_ = 0;
};

}  // namespace trireme
