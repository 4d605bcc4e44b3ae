// Copies between pageable host memory and the device through a ring of pinned memory (16 MiB). No
// other code copies between pageable host memory and a device.
#pragma once

#include <array>

#include "engine/device/context.h"

namespace trireme::cuda {

class Staging {
 public:
  Staging();
  // On the main stream. Waits only when the ring is full of copies that have not run.
  void upload(Context& gpu, void* device, const void* host, int64_t bytes);
  // Waits for all earlier work on the main stream, and for the copy.
  void download(Context& gpu, void* host, const void* device, int64_t bytes);

 private:
  // Slots are used in turn; a slot's event marks the completion of its last copy.
  static constexpr size_t kSlots = 4;
  static constexpr int64_t kSlotBytes = int64_t{4} << 20;
  struct Slot {
    std::byte* data = nullptr;
    int64_t used = 0;  // bytes of uploads since it became the current slot
    Event copied;
  };
  void take_next_slot(Context& gpu);
  Buffer ring_;
  std::array<Slot, kSlots> slots_;
  size_t current_ = 0;
};

}  // namespace trireme::cuda
