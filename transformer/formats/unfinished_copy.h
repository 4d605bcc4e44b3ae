// A directory into which a model is being written: a file in it says what is asked for, until all
// is written, so that the same command goes on after an interruption.
#pragma once

#include <string>

#include "transformer/formats/model_source.h"

namespace trireme {

class UnfinishedCopy {
 public:
  // Begins in `directory` (absent or empty), or finds that the same was begun there: `marker` is
  // the name of the file that says so, `asked` the rest of what decides about the bytes. InputError
  // where the directory holds anything else. Where the source has changed in between, what was
  // written of it is removed, and the log says so.
  UnfinishedCopy(const ModelSource& source, std::string directory, const char* marker,
                 const std::string& asked);
  // All that decides about the bytes, for AtomicFile's resume_as.
  const std::string& identity() const { return identity_; }
  // All is written.
  void finish();

 private:
  std::string directory_, marker_, identity_;
};

}  // namespace trireme
