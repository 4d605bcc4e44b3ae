// Checkpoint directories that can be saved by any layout of ranks and loaded by any other.
//
//   <root>/step-00000100/shard-00000-of-00002.safetensors   one per rank that writes anything
//                        manifest.json                      written last: marks a complete one
//   <root>/latest                                           "step-00000100", updated last
//
// A save writes step-N.tmp, fsyncs, renames, updates `latest`, then prunes. A kill at any moment
// leaves the previous checkpoints intact; leftovers (*.tmp, *.deleting) are removed by the next
// save without resume_as. Saving a step that exists replaces it: atomically if the file system can
// exchange two names (RENAME_EXCHANGE), else the old one is removed just before.
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

// Ranks that save together, independent of the transport. Defaults: one rank.
struct CheckpointRanks {
  int rank = 0;
  int size = 1;
  // Collective: rank 0 receives one string per rank, in rank order; the results on others are
  // unspecified.
  std::function<std::vector<std::string>(const std::string&)> gather;
  // Collective: every rank receives rank 0's string.
  std::function<std::string(const std::string&)> broadcast;
};

// Part of a logical tensor that this rank writes. Over all ranks the parts of a (kind, name) must
// cover the tensor exactly once: where several ranks hold a replica, one of them writes it.
struct CheckpointPart {
  std::string kind, name;
  std::vector<int64_t> shape;  // of the whole logical tensor
  TensorBox box;               // empty: the whole tensor
  int64_t begin = 0;           // index of data's first element in the flattened box
  ConstTensor data;            // contiguous; elements [begin, begin + numel()) of that box
};

struct SaveOptions {
  std::string root;  // directory of all checkpoints of the run, created if absent
  int64_t step = 0;
  // Complete checkpoints to keep, including the new one; 0: all. Checkpoints of higher steps and
  // damaged ones are always kept.
  int64_t keep_last = 0;
  // Whether keep_last counts a complete checkpoint; one that is not counted is removed once
  // keep_last later ones are kept. Empty: all count.
  std::function<bool(const class CheckpointReader&)> counts = {};
  // Passes the bytes of a part's data, starting at element `first`, to `take` in order, in pieces:
  // for data outside host memory. Empty: all data is in host memory. With finish_reading, `take`
  // may be called asynchronously on another thread, part by part, until finish_reading returns.
  using Bytes = std::span<const std::byte>;
  using Take = std::function<void(Bytes)>;
  std::function<void(const ConstTensor& data, int64_t first, const Take& take)> read = {};
  std::function<void()> finish_reading = {};
  // Called with the number of bytes of this rank's shard, header included, that are on disk so far.
  // Runs on the thread of save_checkpoint() for bytes kept from an interrupted save (resume_as), on
  // the thread that calls `take` for written ones.
  std::function<void(int64_t done)> progress = {};
  // Text that determines the shards' bytes, for AtomicFile's resume_as: an interrupted save of the
  // same content is resumed. One rank only.
  std::string resume_as = {};
};

struct SavedCheckpoint {
  std::string directory;
  int64_t bytes = 0;                 // of all shards
  int64_t kept = 0;                  // of those, from an interrupted save
  std::vector<std::string> removed;  // directories that keep_last pruned
  std::string warning;               // set if the checkpoint is safe but pruning failed
};

// Saves a checkpoint; collective over `ranks`. `state`: a JSON object, stored unchanged, or null,
// stored as {}; rank 0's is used. Throws on *every* rank if any rank fails, as agree() does
// (rank_agreement.h). A full disk is detected before writing if the file system reports its free
// space. A failed save leaves at most files to resume from, under a name that readers ignore. If
// only `latest` could not be written, the new checkpoint is in place.
SavedCheckpoint save_checkpoint(const SaveOptions& options,
                                const std::vector<CheckpointPart>& parts,
                                const nlohmann::ordered_json& state,
                                const CheckpointRanks& ranks = {});

// Removes partial checkpoints of killed processes under `root`, which may be absent. Call on one
// rank while none saves.
void sweep_leftovers(const std::string& root);

// Renames the checkpoints under `root`, which may be absent, of steps above `step` to
// NAME.dropped, so that no run continues from them. Returns the new names, ascending. FileError.
std::vector<std::string> set_aside_later(const std::string& root, int64_t step);

class CheckpointReader {
 public:
  // Reads and checks the manifest, and the presence and size of every shard. `path`: a step
  // directory, or a root (then the one that `latest` names).
  explicit CheckpointReader(const std::string& path);
  // The same checkpoint for one of several writers that saved tensors under kinds of their own: a
  // tensor of the kind `kind` + `variant` takes the place of the one of kind `kind`.
  CheckpointReader(CheckpointReader&& other, const std::string& variant);
  ~CheckpointReader();
  CheckpointReader(CheckpointReader&& other) noexcept;
  CheckpointReader& operator=(CheckpointReader&& other) noexcept;

  const std::string& directory() const { return directory_; }
  const CheckpointManifest& manifest() const { return manifest_; }
  int64_t step() const { return manifest_.step; }
  nlohmann::ordered_json state() const;
  // nullptr when absent.
  const CheckpointTensor* find(std::string_view kind, std::string_view name) const;
  // As find(), but throws InputError if (kind, name) is absent or has another shape or dtype.
  const CheckpointTensor& require(std::string_view kind, std::string_view name, DType dtype,
                                  const std::vector<int64_t>& shape) const;

  // Reads elements [begin, begin + destination.numel()) of the flattened `box` of a logical tensor,
  // however its parts were saved. `destination` is contiguous, on the host, of the tensor's dtype.
  void read(const CheckpointTensor& tensor, const TensorBox& box, int64_t begin,
            const Tensor& destination) const;
  void read_whole(const CheckpointTensor& tensor, const Tensor& destination) const;

  // Reads every byte and compares checksums. Returns one line per damaged shard, naming all its
  // damaged tensors; empty: intact. Throws FileError if a shard cannot be read.
  std::vector<std::string> verify() const;

 private:
  std::string directory_;
  CheckpointManifest manifest_;
  std::vector<int> descriptors_;  // one per shard
  std::map<std::pair<std::string, std::string>, size_t> by_name_;
};

// Reason to skip a complete checkpoint; empty: none.
using CheckpointSkipReason = std::function<std::string(const CheckpointReader&)>;
struct NewestCheckpoint {
  std::string directory;             // empty: none found
  std::vector<std::string> skipped;  // why newer ones were skipped, one line each
};
// Finds the newest checkpoint under `root` that is intact and for which `doubt` returns no reason
// to skip it. Checks every byte if `thorough`, else only manifest and shard sizes. `root` may be
// absent. Throws FileError if `root` or a checkpoint newer than the one found cannot be read for
// any reason other than a missing file: it may be complete.
NewestCheckpoint find_newest_whole(const std::string& root, bool thorough = true,
                                   const CheckpointSkipReason& doubt = {});

std::string step_directory_name(int64_t step);  // "step-00000100"; 0 <= step < 10^8
bool parse_step_directory_name(const std::string& name, int64_t& step);  // false: not such a name
std::string shard_file_name(size_t index, size_t count);  // "shard-00000-of-00002.safetensors"

}  // namespace trireme
