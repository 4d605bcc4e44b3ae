// Device part of a Work.
#pragma once

namespace trireme {

class DevicePart {
 public:
  virtual ~DevicePart() = default;
  // Makes the context's main stream, not the host, wait for the operation. Call in the context's
  // thread once the host's part is done; may be called repeatedly. Throws if a rank is lost.
  virtual void wait() = 0;
  // Whether the device has finished the work enqueued so far. wait() may enqueue more: the copy of
  // a message that has arrived on the host.
  virtual bool done() = 0;
};

}  // namespace trireme
