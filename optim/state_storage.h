// Storage of optimizer states in memory or in a file: one array per kind, all of equal length, and
// a loop over windows of them in which an update runs.
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
  // Stores the sizes only; allocate() allocates.
  StateStorage(std::vector<Kind> kinds, int64_t elements, const OffloadConfig& offload);
  ~StateStorage();
  StateStorage(const StateStorage&) = delete;
  StateStorage& operator=(const StateStorage&) = delete;

  // Allocates states of zero in the memory of the context's device, or a file and its windows in
  // host memory. InputError names the folder if a file of this size cannot be created.
  void allocate(Ctx& ctx);
  const std::vector<Kind>& kinds() const { return kinds_; }
  int64_t memory_bytes() const;  // bytes of the states, or of a file's windows
  int64_t file_bytes() const;    // 0: there is no file

  // Calls f for consecutive windows that cover all elements. states[k] (window size) is the window
  // of kind k, read before the call and written back after it. Without a file there is one window.
  // With a file, a thread prefetches windows and writes them back asynchronously, and at most
  // buffer_count windows are in memory. A file error ends the loop and is thrown here.
  using Visit = StateVisit;
  void for_each_window(const Visit& f);

  // Whole array of a kind, for saving or loading; memory-mapped if it is in a file.
  Tensor whole(size_t kind) const;

 private:
  int64_t elements_;
  std::vector<Kind> kinds_;
  OffloadConfig offload_;
  std::vector<Buffer> memory_;  // one per kind
  std::unique_ptr<StateFile> file_;
};

}  // namespace trireme
