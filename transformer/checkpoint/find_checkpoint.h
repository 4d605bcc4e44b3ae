// Resolution of the path that a user names to a checkpoint of ours or a third-party model.
#pragma once

#include <string>

#include "engine/io/sharded_checkpoint.h"

namespace trireme {

// The directory of a run's checkpoints: its checkpoints/, or the folder that its
// resolved_config.json names. Any other path is returned as it is.
std::string checkpoint_place(const std::string& path);

// Member of a training checkpoint's state: the length of the row of steps up to it that were
// skipped because loss or gradients were not finite.
inline constexpr const char* kSkippedRow = "skipped_row";
// Reason for which a checkpoint is passed over for an older one: it was saved in such a row, and
// its weights may be what made the loss not finite. Empty: there is none.
std::string skipped_row(const CheckpointReader& reader);
// Newest whole one under `root` outside of such a row, else the newest whole one.
NewestCheckpoint find_newest_good(const std::string& root, bool thorough = true);

// Newest good checkpoint of a run directory, of a directory of checkpoints, or `path` itself where
// it is one, with the reason for each newer one that was skipped. Reads every byte: one rank calls
// it and broadcasts the result. InputError where there is none, or where the one that `path` names
// is damaged.
NewestCheckpoint find_checkpoint(const std::string& path);

// Newest checkpoint at a path by its manifest alone; empty: there is none.
std::string newest_checkpoint_at(const std::string& path);

// The place of a model: `path` of a third-party model, else the newest whole checkpoint, every byte
// of which was read once. InputError where there is none.
std::string find_model(const std::string& path);

}  // namespace trireme
