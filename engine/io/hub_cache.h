// Models in the folder where HuggingFace's programs keep what they download:
//
//   HUB/models--ORG--NAME/refs/REVISION       the commit that a branch or tag was at
//   HUB/models--ORG--NAME/snapshots/COMMIT/   the files of a model directory, links to blobs
//
// HUB is $HF_HUB_CACHE, else $HF_HOME/hub, else $XDG_CACHE_HOME/huggingface/hub, else
// ~/.cache/huggingface/hub. Layout: huggingface_hub, "Understand caching".
#pragma once

#include <string>

namespace trireme {

// The model directory that a user's word names: the newest "main" snapshot of a folder
// models--ORG--NAME; of "ORG/NAME" or "ORG/NAME@REVISION" (a branch, a tag or a commit), where no
// such path exists, that in the cache. Any other word is returned as it is, and so is the name of a
// model that is not in the cache. InputError where the cache has the model but not the revision, or
// several snapshots and nothing says which one "main" is.
std::string local_model(const std::string& word);

// The folder HUB.
std::string hub_cache();

}  // namespace trireme
