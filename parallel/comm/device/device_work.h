// The part of a Work that lies on a GPU.
#pragma once

namespace trireme {

class DevicePart {
 public:
  virtual ~DevicePart() = default;
  // The context's main stream waits for the operation; the host does not. In the context's thread,
  // once the host's part is done; any number of times. Throws when a rank is lost.
  virtual void wait() = 0;
  virtual bool done() = 0;  // whether the device is through with it
};

}  // namespace trireme
