// The memory or the file in which optimizer states live: arrays of equal length, and one loop over
// windows of all of them that an update runs in.
#pragma once

#include <memory>
#include <vector>

#include "engine/core/memory.h"
#include "optim/config.h"
#include "optim/state_kind.h"

namespace trireme {

class StateFile;
struct Ctx;

class StateStorage {
 public:
  using Kind = StateKind;
  // Takes nothing before allocate().
  StateStorage(std::vector<Kind> kinds, int64_t elements, const OffloadConfig& offload);
  ~StateStorage();
  StateStorage(const StateStorage&) = delete;
  StateStorage& operator=(const StateStorage&) = delete;

  // Zeros, in memory of this kind (a file: the host's). InputError naming the folder where a file
  // of this size cannot be had.
  void allocate(Ctx& ctx);
  const std::vector<Kind>& kinds() const { return kinds_; }
  int64_t memory_bytes() const;  // of the states, or of the windows of a file
  int64_t file_bytes() const;    // 0: there is no file

  // Calls f for consecutive windows that cover all elements: states[k] (window size) is kind k's
  // part, read before the call and written back after it. Without a file there is one window. With
  // one, a thread reads ahead and writes behind, so that at most buffer_count windows are in
  // memory; an error of the file ends the loop and is thrown here.
  using Visit = StateVisit;
  void for_each_window(const Visit& f);

  // All of kind k, to save or to load: a mapping where it lives in a file.
  Tensor whole(size_t kind) const;

 private:
  int64_t elements_;
  std::vector<Kind> kinds_;
  OffloadConfig offload_;
  std::vector<Buffer> memory_;  // of each kind
  std::unique_ptr<StateFile> file_;
};

}  // namespace trireme
