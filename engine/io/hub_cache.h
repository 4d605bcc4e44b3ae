// HuggingFace's download cache of models:
//
//   HUB/models--ORG--NAME/refs/REVISION       the commit that a branch or tag was at
//   HUB/models--ORG--NAME/snapshots/COMMIT/   the files of a model directory, links to blobs
//
// HUB is $HF_HUB_CACHE, else $HF_HOME/hub, else $XDG_CACHE_HOME/huggingface/hub, else
// ~/.cache/huggingface/hub. An empty variable counts as unset. Layout: huggingface_hub, "Understand
// caching".
#pragma once

#include <string>

namespace trireme {

// Resolves a model argument to a model directory:
// - a folder models--ORG--NAME with a folder snapshots: its snapshot of "main";
// - a name "ORG/NAME" or "NAME", optionally with "@REVISION" (a branch, a tag or a commit; default:
//   "main"), unless such a path exists: the snapshot in the cache.
//
// Any other argument is returned unchanged, and so is the name of a model that is not in the cache.
// If no revision is given and there is no refs/main, the only snapshot is used. Throws InputError
// if the cache has the model but not the revision, or several snapshots without refs/main.
std::string local_model(const std::string& word);

// Path of the folder HUB above.
std::string hub_cache();

}  // namespace trireme
