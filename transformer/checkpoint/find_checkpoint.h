// Resolution of a user's path to a Trireme checkpoint or a third-party model.
#pragma once

#include <string>

#include "engine/io/sharded_checkpoint.h"

namespace trireme {

// Directory of a run's checkpoints: its checkpoints/, or the folder that its resolved_config.json
// names. Returns any other path unchanged.
std::string checkpoint_place(const std::string& path);

// Member of a training checkpoint's state: how many steps in a row, the last one included, were
// skipped because loss or gradients were not finite.
inline constexpr const char* kSkippedRow = "skipped_row";
// Reason to prefer an older checkpoint: this one was saved in such a run of skipped steps, and its
// weights may be the cause. Empty: no reason.
std::string skipped_row(const CheckpointReader& reader);
// Newest whole checkpoint under `root` for which skipped_row() is empty, else the newest whole one.
NewestCheckpoint find_newest_good(const std::string& root, bool thorough = true);

// Newest good checkpoint of a run directory or of a directory of checkpoints, or `path` itself
// where it is a checkpoint, with the reason for each newer one that was skipped. Reads every byte:
// one rank calls this function and broadcasts the result. InputError where there is none, or where
// the checkpoint that `path` names is damaged.
NewestCheckpoint find_checkpoint(const std::string& path);

// Newest checkpoint at a path, judged by its manifest alone. Empty: there is none.
std::string newest_checkpoint_at(const std::string& path);

// Path of the model's files: `path` where it is a third-party model, else the newest whole
// checkpoint, every byte of which this function reads once. InputError where there is none.
std::string find_model(const std::string& path);

}  // namespace trireme
