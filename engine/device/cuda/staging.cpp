#include "engine/device/cuda/staging.h"

#include <algorithm>
#include <cstring>

namespace trireme::cuda {

Staging::Staging() : ring_("staging", static_cast<int64_t>(kSlots) * kSlotBytes, Memory::kPinned) {
  for (size_t i = 0; i < kSlots; ++i)
    slots_[i].data = ring_.data() + static_cast<int64_t>(i) * kSlotBytes;
}

void Staging::take_next_slot(Context& gpu) {
  Slot& full = slots_[current_];
  if (full.copied.raw() == nullptr) full.copied = make_event(gpu);
  record(full.copied, gpu.main);
  current_ = (current_ + 1) % kSlots;
  Slot& next = slots_[current_];
  if (next.copied.raw() != nullptr) synchronize(next.copied);
  next.used = 0;
}

void Staging::upload(Context& gpu, void* device, const void* host, int64_t bytes) {
  TRIREME_CHECK(!gpu.capturing, "upload of ", bytes, " bytes while work is captured");
  auto* to = static_cast<std::byte*>(device);
  const auto* from = static_cast<const std::byte*>(host);
  while (bytes > 0) {
    if (slots_[current_].used == kSlotBytes) take_next_slot(gpu);
    Slot& slot = slots_[current_];
    const int64_t part = std::min(bytes, kSlotBytes - slot.used);
    std::memcpy(slot.data + slot.used, from, static_cast<size_t>(part));
    copy_async(gpu, gpu.main, to, slot.data + slot.used, part);
    slot.used += part;
    to += part;
    from += part;
    bytes -= part;
  }
}

void Staging::download(Context& gpu, void* host, const void* device, int64_t bytes) {
  auto* to = static_cast<std::byte*>(host);
  const auto* from = static_cast<const std::byte*>(device);
  // Uploads that are still queued may read the slot.
  take_next_slot(gpu);
  std::byte* const slot = slots_[current_].data;
  while (bytes > 0) {
    const int64_t part = std::min(bytes, kSlotBytes);
    copy_async(gpu, gpu.main, slot, from, part);
    synchronize(gpu, gpu.main);
    std::memcpy(to, slot, static_cast<size_t>(part));
    to += part;
    from += part;
    bytes -= part;
  }
}

}  // namespace trireme::cuda
