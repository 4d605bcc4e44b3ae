// Models in HuggingFace's download cache:
//
//   HUB/models--ORG--NAME/refs/REVISION       the commit that a branch or tag was at
//   HUB/models--ORG--NAME/snapshots/COMMIT/   the files of a model directory, links to blobs
//
// HUB is $HF_HUB_CACHE, else $HF_HOME/hub, else $XDG_CACHE_HOME/huggingface/hub, else
// ~/.cache/huggingface/hub. Layout: huggingface_hub, "Understand caching".
#pragma once

#include <string>

namespace trireme {

// Model directory for the user's `word`:
// - a folder models--ORG--NAME: its newest "main" snapshot;
// - "ORG/NAME" or "ORG/NAME@REVISION" (a branch, a tag or a commit) where no such path exists: the
//   snapshot in the cache.
//
// Any other word is returned unchanged, and so is the name of a model that is not in the cache.
// Throws InputError if the cache has the model but not the revision, or has several snapshots and
// no record of which is "main".
std::string local_model(const std::string& word);

// The folder HUB above.
std::string hub_cache();

}  // namespace trireme
