// Served model ids: those of the model, and those of adapters, which can be loaded and unloaded at
// run time.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "serving/api/small_bodies.h"

namespace trireme {

// Served model id, as looked up for a request. While a copy of the lease exists, no other adapter
// gets the slot.
struct ServedId {
  ModelCard card;
  uint64_t generation = 0;  // 0: the model alone; unique for each adapter ever served
  std::shared_ptr<const void> lease = {};
};

class ServedIds {
 public:
  // cards: ids served from the start. slots: number of adapter slots; 0: no adapter can be loaded
  // at run time. freed: called when the last lease of a slot ends, before another adapter can get
  // the slot; on any thread, never after this object's destruction; must not call this object.
  ServedIds(const std::vector<ModelCard>& cards, int64_t slots, std::function<void(int32_t)> freed);
  ~ServedIds();
  ServedIds(const ServedIds&) = delete;
  ServedIds& operator=(const ServedIds&) = delete;

  std::optional<ServedId> find(const std::string& id) const;  // nullopt: not served
  std::vector<ModelCard> cards() const;
  std::string name_of(int32_t slot) const;  // last adapter in the slot; "": none yet
  int64_t slots() const { return slots_; }  // for adapters loaded at run time
  // Maximum adapters served at once: slots(), or if that is 0, those served from the start.
  int64_t max_adapters() const { return std::ssize(in_slots_->all); }

  // Returns a slot that no sequence uses. ApiError 400 if the name is in use, 503 when all slots
  // are taken. Does not reserve the slot: callers must serialize free_slot() and add().
  int32_t free_slot(const std::string& name) const;
  // Adds the card's id, which must not be served yet. An adapter (card.adapter >= 0) occupies that
  // slot, which must be free.
  void add(const ModelCard& card);
  // Removes an adapter's id. Running requests keep the adapter. ApiError 404 if it is not the id of
  // an adapter.
  void remove(const std::string& name);

 private:
  struct Slot {
    std::string name;  // of the last adapter
    bool taken = false;
  };
  // Shared with leases, which may outlive ServedIds.
  struct Slots {
    std::mutex mutex;
    std::vector<Slot> all;
    std::function<void(int32_t)> freed;
  };
  class Lease;
  const int64_t slots_;
  std::shared_ptr<Slots> in_slots_ = std::make_shared<Slots>();
  mutable std::mutex mutex_;  // guards all below; locked before that of the slots
  std::vector<ServedId> ids_;
  uint64_t generations_ = 0;
};

}  // namespace trireme
