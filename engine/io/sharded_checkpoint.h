// Checkpoint directories that any layout writes and any layout reads.
//
//   <root>/step-00000100/shard-00000-of-00002.safetensors   one per rank that writes something
//                        manifest.json                      written last: its presence means "whole"
//   <root>/latest                                           "step-00000100", moved after everything else
//
// A save builds step-N.tmp, fsyncs, renames, moves `latest`, then prunes. A kill at any moment
// leaves the previous checkpoints as they were; leftovers (*.tmp, *.deleting) are swept by the next
// save.
#pragma once

#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "engine/core/tensor.h"
#include "engine/io/checkpoint_manifest.h"

namespace trireme {

// The ranks that save together, without a dependence on how they talk. One rank: the defaults.
struct CheckpointRanks {
  int rank = 0;
  int size = 1;
  // Collective: rank 0 receives one string per rank, in rank order; the others anything.
  std::function<std::vector<std::string>(const std::string&)> gather;
  // Collective: every rank receives rank 0's string.
  std::function<std::string(const std::string&)> broadcast;
};

// One part of one logical tensor that this rank writes. Over all ranks the parts of a (kind, name)
// must cover the tensor exactly once: replicas are written by one of their holders.
struct CheckpointPart {
  std::string kind, name;
  std::vector<int64_t> shape;  // of the whole logical tensor
  TensorBox box;               // empty: the whole tensor
  int64_t begin = 0;           // of the flattened box
  ConstTensor data;            // contiguous; its numel() elements start at `begin`
};

struct SaveOptions {
  std::string root;  // the directory of all checkpoints of the run, created if absent
  int64_t step = 0;
  int64_t keep_last = 0;  // whole checkpoints to keep, the new one included; 0: all
  // Whether keep_last counts a whole checkpoint; one that it does not goes as soon as so many later
  // ones are kept. Empty: it counts all.
  std::function<bool(const class CheckpointReader&)> counts = {};
  // Gives the bytes of a part's data from element `first` on, in order, in pieces: for data that
  // does not lie in the host's memory. Empty: all of it does. Where finish_reading is given, `take`
  // may be called in another thread, after all of the parts before, until that has returned.
  using Bytes = std::span<const std::byte>;
  using Take = std::function<void(Bytes)>;
  std::function<void(const ConstTensor& data, int64_t first, const Take& take)> read = {};
  std::function<void()> finish_reading = {};
  // Called with the bytes of this rank's shard that are written or kept, where `take` is called.
  std::function<void(int64_t done)> progress = {};
  // All that decides about the shards' bytes, for AtomicFile's resume_as: what an interrupted save
  // of the same left is gone on with. One rank only.
  std::string resume_as = {};
};

struct SavedCheckpoint {
  std::string directory;
  int64_t bytes = 0;                 // of all shards
  int64_t kept = 0;                  // of them, from an interrupted save
  std::vector<std::string> removed;  // directories that keep_last pruned
  std::string warning;               // the checkpoint is safe, but pruning failed; else empty
};

// Collective over `ranks`. `state` (rank 0's) is stored as it is. InputError on *every* rank when
// any rank fails (full disk: found before writing where the file system tells), and nothing is left
// behind then but what resume_as goes on with, under a name that no reader takes for a checkpoint.
SavedCheckpoint save_checkpoint(const SaveOptions& options,
                                const std::vector<CheckpointPart>& parts,
                                const nlohmann::ordered_json& state,
                                const CheckpointRanks& ranks = {});

// Removes what killed processes left half written under `root` (absent: nothing). One rank calls
// it, while none saves.
void sweep_leftovers(const std::string& root);

class CheckpointReader {
 public:
  // Reads and checks the manifest, and the presence and size of every shard. `path`: a step
  // directory, or a root (then what `latest` names).
  explicit CheckpointReader(const std::string& path);
  ~CheckpointReader();
  CheckpointReader(CheckpointReader&& other) noexcept;
  CheckpointReader& operator=(CheckpointReader&& other) noexcept;

  const std::string& directory() const { return directory_; }
  const CheckpointManifest& manifest() const { return manifest_; }
  int64_t step() const { return manifest_.step; }
  nlohmann::ordered_json state() const;
  const CheckpointTensor* find(std::string_view kind, std::string_view name) const;
  // InputError naming what the checkpoint holds when (kind, name) is absent or its shape or dtype
  // differ.
  const CheckpointTensor& require(std::string_view kind, std::string_view name, DType dtype,
                                  const std::vector<int64_t>& shape) const;

  // Elements [begin, begin + destination.numel()) of the flattened `box` of a logical tensor, from
  // whatever parts were saved. The dtypes must agree; `destination` is contiguous.
  void read(const CheckpointTensor& tensor, const TensorBox& box, int64_t begin,
            const Tensor& destination) const;
  void read_whole(const CheckpointTensor& tensor, const Tensor& destination) const;

  // Reads every byte and compares checksums. One line per damaged shard naming the tensor; empty:
  // whole.
  std::vector<std::string> verify() const;

 private:
  std::string directory_;
  CheckpointManifest manifest_;
  std::vector<int> descriptors_;  // one per shard
  std::map<std::pair<std::string, std::string>, size_t> by_name_;
};

// Why a whole checkpoint is passed over; empty: it is not.
using CheckpointDoubt = std::function<std::string(const CheckpointReader&)>;
struct NewestCheckpoint {
  std::string directory;             // empty: there is none
  std::vector<std::string> skipped;  // why newer ones were passed over, one line each
};
// The newest checkpoint under `root` that verifies; every byte is read when `thorough`, else
// manifest and shard sizes only. `root` may be absent. FileError where `root` or a checkpoint newer
// than the newest whole one cannot be read for another reason than that a file of it is gone: it
// may be whole.
NewestCheckpoint find_newest_whole(const std::string& root, bool thorough = true,
                                   const CheckpointDoubt& doubt = {});

std::string step_directory_name(int64_t step);                           // "step-00000100"
bool parse_step_directory_name(const std::string& name, int64_t& step);  // false: another name
std::string shard_file_name(size_t index, size_t count);  // "shard-00000-of-00002.safetensors"

}  // namespace trireme
