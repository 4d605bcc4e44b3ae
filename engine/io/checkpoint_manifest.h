// Manifest of a checkpoint directory (manifest.json): maps parts of logical tensors to byte ranges
// of shards (docs/reference/checkpoint-format.md). Untrusted input: every number is checked against
// the shape, the dtype and the other entries before it is used.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "engine/core/dtype.h"
#include "engine/io/tensor_box.h"

namespace trireme {

inline constexpr const char* kCheckpointFormat = "trireme-checkpoint";
inline constexpr int kCheckpointVersion = 1;
inline constexpr const char* kManifestName = "manifest.json";

// Kinds of values stored for a logical tensor: a name may occur once per kind. Users of the format
// may add kinds; training and imports write these.
inline constexpr const char* kKindParam = "param";
inline constexpr const char* kKindMaster = "master";
inline constexpr const char* kKindExpAvg = "exp_avg";
inline constexpr const char* kKindExpAvgSq = "exp_avg_sq";
inline constexpr const char* kKindMomentum = "momentum";
inline constexpr const char* kKindRouter = "router";  // selection biases and shares of experts
inline constexpr const char* kKindMtp = "mtp";        // MTP layers that imports keep for exports
inline constexpr const char* kKindFloat8 = "float8";  // FP8 scales and their amax histories

// Part of a logical tensor in one shard.
struct CheckpointSlice {
  TensorPart part;
  int64_t shard = 0;      // index into CheckpointManifest::shards
  int64_t offset = 0;     // bytes from the start of the shard file
  int64_t bytes = 0;      // of the part's elements
  uint64_t checksum = 0;  // of those bytes (checksum.h)
};

struct CheckpointTensor {
  std::string kind, name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;           // of the whole logical tensor
  std::vector<CheckpointSlice> slices;  // cover every element exactly once
  int64_t numel() const;                // of the whole logical tensor
};

struct CheckpointShard {
  std::string file;  // a file name inside the directory, without a path
  int64_t bytes = 0;
  uint64_t checksum = 0;  // of the whole file
};

struct CheckpointManifest {
  int version = kCheckpointVersion;
  std::string engine_version;  // of the program that wrote it
  int64_t step = 0;
  std::vector<CheckpointShard> shards;
  std::vector<CheckpointTensor> tensors;  // sorted by (kind, name); pairs are unique
  std::string state;                      // the caller's state: any JSON object, as text; "": {}
};

// Text of the file; its last entry is a checksum of all the text before it.
std::string manifest_to_text(const CheckpointManifest& manifest);
// Throws InputError naming `path` and the entry if the text is not a manifest of this version, was
// changed after it was written, or contradicts itself (ranges outside boxes, boxes outside shapes,
// overlapping or missing elements, offsets outside shards, names leading out of the directory). A
// tensor may have at most 4096 different boxes.
CheckpointManifest manifest_from_text(const std::string& manifest_text, const std::string& path);

}  // namespace trireme
