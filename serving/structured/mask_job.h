// Mask that a reader waits for. Lives as long as reader or worker needs it.
#pragma once

#include <atomic>

#include "serving/structured/compiled_grammar.h"

namespace trireme {

struct MaskJob {
  std::shared_ptr<const CompiledGrammar> grammar;
  CompiledGrammar::Place place;
  std::string bytes;
  int64_t tokens_left = 0;
  std::vector<uint32_t> mask;
  std::shared_ptr<MaskPace> pace;
  CompiledGrammar::Found found = {};
  std::atomic<bool> done{false};  // all above is the reader's again
  std::atomic<bool> wanted{true};

  void run() {
    if (!wanted) return;
    found = grammar->read(place, bytes, tokens_left, mask);
    tell();
  }
  void refuse() {
    found = {.lacks_memory = true};
    tell();
  }

 private:
  void tell() {
    done = true;
    pace->notify();
  }
};

}  // namespace trireme
