// Directory of an export or import in progress: a marker file records the arguments until
// everything is written, so that repeating the command resumes it after an interruption.
#pragma once

#include <string>

#include "transformer/formats/model_source.h"

namespace trireme {

class UnfinishedCopy {
 public:
  // Starts a copy in `directory` (absent or empty), or resumes the same one. marker: name of the
  // marker file. asked: text of the options that determine the bytes. InputError if the directory
  // holds anything else. If the source has changed since the interruption, removes the weights and
  // configuration files written so far and logs a warning.
  UnfinishedCopy(const ModelSource& source, std::string directory, const char* marker,
                 const std::string& asked);
  // Text that determines the bytes, for AtomicFile's resume_as.
  const std::string& identity() const { return identity_; }
  // Ends the copy: removes the marker.
  void finish();

 private:
  std::string directory_, marker_, identity_;
};

}  // namespace trireme
