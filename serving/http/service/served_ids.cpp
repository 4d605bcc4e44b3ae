#include "serving/http/service/served_ids.h"

#include <algorithm>

#include "serving/api/api_error.h"

namespace trireme {

class ServedIds::Lease {
 public:
  Lease(std::shared_ptr<Slots> slots, int32_t slot) : slots_(std::move(slots)), slot_(slot) {}
  ~Lease() {
    const std::lock_guard lock(slots_->mutex);
    if (slots_->freed) slots_->freed(slot_);
    slots_->all[static_cast<size_t>(slot_)].taken = false;
  }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

 private:
  std::shared_ptr<Slots> slots_;
  int32_t slot_;
};

ServedIds::ServedIds(const std::vector<ModelCard>& cards, int64_t slots,
                     std::function<void(int32_t)> freed)
    : slots_(slots) {
  const auto fixed =
      std::ranges::count_if(cards, [](const ModelCard& c) { return c.adapter >= 0; });
  in_slots_->all.resize(static_cast<size_t>(slots > 0 ? slots : fixed));
  in_slots_->freed = std::move(freed);
  for (const ModelCard& card : cards) add(card);
}

ServedIds::~ServedIds() {
  const std::lock_guard lock(in_slots_->mutex);
  in_slots_->freed = {};
}

std::optional<ServedId> ServedIds::find(const std::string& id) const {
  const std::lock_guard lock(mutex_);
  const auto at =
      std::ranges::find_if(ids_, [&](const ServedId& one) { return one.card.id == id; });
  return at == ids_.end() ? std::nullopt : std::optional(*at);
}

std::vector<ModelCard> ServedIds::cards() const {
  const std::lock_guard lock(mutex_);
  std::vector<ModelCard> out;
  out.reserve(ids_.size());
  for (const ServedId& one : ids_) out.push_back(one.card);
  return out;
}

std::string ServedIds::name_of(int32_t slot) const {
  const std::lock_guard lock(in_slots_->mutex);
  const auto at = static_cast<size_t>(slot);
  return at < in_slots_->all.size() ? in_slots_->all[at].name : "";
}

int32_t ServedIds::free_slot(const std::string& name) const {
  if (find(name)) fail_field("lora_name", "`", name.substr(0, 200), "` is already served");
  const std::lock_guard lock(in_slots_->mutex);
  const auto at =
      std::ranges::find_if(in_slots_->all, [](const Slot& slot) { return !slot.taken; });
  if (at == in_slots_->all.end())
    throw ApiError(503, concat("all ", slots_, " slots for adapters (--max-loras) are in use"),
                   "lora_name", "no_adapter_place")
        .retry_after(1000);
  return static_cast<int32_t>(at - in_slots_->all.begin());
}

void ServedIds::add(const ModelCard& card) {
  ServedId one{.card = card};
  const std::lock_guard lock(mutex_);
  if (card.adapter >= 0) {
    one.generation = ++generations_;
    if (slots_ > 0) one.lease = std::make_shared<const Lease>(in_slots_, card.adapter);
    const std::lock_guard held(in_slots_->mutex);
    in_slots_->all.at(static_cast<size_t>(card.adapter)) = {card.id, true};
  }
  ids_.push_back(std::move(one));
}

void ServedIds::remove(const std::string& name) {
  const std::lock_guard lock(mutex_);
  const auto at = std::ranges::find_if(
      ids_, [&](const ServedId& one) { return one.card.adapter >= 0 && one.card.id == name; });
  if (at == ids_.end())
    throw ApiError(404, concat("The lora adapter `", name.substr(0, 200), "` is not served"),
                   "lora_name", "model_not_found");
  ids_.erase(at);
}

}  // namespace trireme
