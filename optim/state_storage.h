// Storage of optimizer states, in memory or in a file: arrays of equal length, and one loop over
// windows of all of them in which an update runs.
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
  // Allocates nothing before allocate().
  StateStorage(std::vector<Kind> kinds, int64_t elements, const OffloadConfig& offload);
  ~StateStorage();
  StateStorage(const StateStorage&) = delete;
  StateStorage& operator=(const StateStorage&) = delete;

  // Allocates zeroed states in the context's kind of memory (a file: host memory). Throws
  // InputError naming the folder if a file of this size cannot be created.
  void allocate(Ctx& ctx);
  const std::vector<Kind>& kinds() const { return kinds_; }
  int64_t memory_bytes() const;  // of the states, or of a file's windows
  int64_t file_bytes() const;    // 0: there is no file

  // Calls f for consecutive windows that cover all elements: states[k] (window size) is kind k's
  // part, read before the call and written back after it. Without a file there is one window. With
  // a file, a thread prefetches windows and writes them back asynchronously, so that at most
  // buffer_count windows are in memory; a file error ends the loop and is thrown here.
  using Visit = StateVisit;
  void for_each_window(const Visit& f);

  // All of kind k, for saving or loading: a mapping if it is in a file.
  Tensor whole(size_t kind) const;

 private:
  int64_t elements_;
  std::vector<Kind> kinds_;
  OffloadConfig offload_;
  std::vector<Buffer> memory_;  // one per kind
  std::unique_ptr<StateFile> file_;
};

}  // namespace trireme
