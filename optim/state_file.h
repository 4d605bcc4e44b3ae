// File of optimizer states: one page-aligned array per kind, one after the other. An update streams
// the arrays through a few windows in memory, which an I/O thread reads ahead and writes back. The
// file is unlinked as soon as it is open, so it never outlives the process.
#pragma once

#include <condition_variable>
#include <exception>
#include <mutex>

#include "engine/core/memory.h"
#include "optim/config.h"
#include "optim/state_kind.h"

namespace trireme {

class StateFile {
 public:
  // Creates the file in offload.path and reserves its space; InputError if that fails. A window is
  // rounded up to whole pages of every array.
  StateFile(const std::vector<StateKind>& kinds, int64_t elements, const OffloadConfig& offload);
  ~StateFile();
  StateFile(const StateFile&) = delete;
  StateFile& operator=(const StateFile&) = delete;

  static int64_t file_bytes(const std::vector<StateKind>& kinds, int64_t elements);
  static int64_t memory_bytes(const std::vector<StateKind>& kinds, int64_t elements,
                              const OffloadConfig& offload);
  // Both as in StateStorage (optim/state_storage.h).
  void for_each_window(const StateVisit& f);
  Tensor whole(size_t kind);

 private:
  struct Progress;  // progress of one for_each_window()
  FlatRange window(int64_t index) const;
  std::vector<Tensor> states_of(int64_t index) const;
  void transfer(int64_t index, bool write);
  void serve(Progress& progress);
  std::vector<StateKind> kinds_;
  int64_t elements_;
  int64_t window_elements_;
  std::vector<int64_t> begins_;  // byte offset of each kind in the file
  std::string name_;             // path, for error messages
  int descriptor_ = -1;
  void* mapping_ = nullptr;
  int64_t bytes_;
  std::vector<Buffer> buffers_;  // one per window
};

}  // namespace trireme
