// Resolution of a user's path to a Trireme checkpoint or a third-party model.
#pragma once

#include <string>

#include "engine/io/sharded_checkpoint.h"

namespace trireme {

// Returns the directory of a run's checkpoints: its checkpoints/, or the folder that its
// resolved_config.json names. Returns any other path unchanged.
std::string checkpoint_place(const std::string& path);

// Member of a training checkpoint's state: number of consecutive steps, up to the last one, that
// were skipped because loss or gradients were not finite.
inline constexpr const char* kSkippedRow = "skipped_row";
// Returns a reason to prefer an older checkpoint if this one was saved after such skipped steps, of
// which its weights may be the cause; else "".
std::string skipped_row(const CheckpointReader& reader);
// Returns the newest whole checkpoint under `root` for which skipped_row() is empty, else the
// newest whole one. thorough: checks every byte, else only manifests and shard sizes.
NewestCheckpoint find_newest_good(const std::string& root, bool thorough = true);

// Returns find_newest_good() of a run directory or of a directory of checkpoints, or `path` itself
// if it is a checkpoint, with the reason for each newer one that was skipped. Reads every byte:
// call it on one rank and broadcast the result. InputError if there is none, or if the checkpoint
// that `path` names is damaged.
NewestCheckpoint find_checkpoint(const std::string& path);

// Returns the newest checkpoint at a path without reading its data: by manifest and shard sizes. ""
// if there is none, or for a third-party model.
std::string newest_checkpoint_at(const std::string& path);

// Returns the path of a model's files: `path` if it is a third-party model, else
// find_checkpoint(), which reads every byte once. InputError if there is none.
std::string find_model(const std::string& path);

}  // namespace trireme
