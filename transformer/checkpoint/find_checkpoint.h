// Resolution of a user's path to a Trireme checkpoint or a third-party model.
#pragma once

#include <string>

#include "engine/io/sharded_checkpoint.h"

namespace trireme {

// Returns the directory of a run's checkpoints: its checkpoints/, or the existing folder that
// checkpoint.save in its resolved_config.json names. Returns any other path unchanged.
std::string checkpoints_directory(const std::string& path);

// Member of a training checkpoint's state: number of consecutive steps, up to the last one, that
// were skipped because loss or gradients were not finite.
inline constexpr const char* kConsecutiveSkips = "skipped_row";
// Returns a reason to prefer an older checkpoint if this one was saved right after such skipped
// steps: its weights may be their cause. Else returns "".
std::string skipped_steps_problem(const CheckpointReader& reader);
// Returns the newest whole checkpoint under `root` for which skipped_steps_problem() is empty, else
// the newest whole one; an empty directory if there is none. thorough: checks every byte, else only
// manifests and shard sizes. FileError as for find_newest_whole() (engine/io/sharded_checkpoint.h).
NewestCheckpoint find_newest_good(const std::string& root, bool thorough = true);

// Returns `path` itself if it is a checkpoint, else find_newest_good() of its folder checkpoints/,
// or of `path` without such a folder. Reads every byte: call it on one rank and broadcast the
// result. InputError if there is none, or if the checkpoint that `path` names is damaged.
NewestCheckpoint find_checkpoint(const std::string& path);

// Returns find_newest_good() of checkpoints_directory(path) without reading data: checks manifests
// and shard sizes only, and nothing if `path` itself is a checkpoint. "" if there is none, or for a
// third-party model.
std::string newest_checkpoint_at(const std::string& path);

// Returns the path of a model's files: `path` if it is a third-party model, else the directory of
// find_checkpoint(checkpoints_directory(path)), which reads every byte once. InputError as for
// find_checkpoint().
std::string find_model(const std::string& path);

}  // namespace trireme
