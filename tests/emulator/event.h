// CUDA event: the position in a stream where it was last recorded.
#pragma once

#include "tests/emulator/stream.h"

struct CUevent_st {
  int device = 0;
  bool timed = true;
  std::shared_ptr<emulator::detail::Stream> stream;    // nullptr: never recorded
  std::uint64_t number = 0;                            // of the record operation in the stream
  std::shared_ptr<emulator::detail::Capture> capture;  // capture during which it was recorded
  std::shared_ptr<emulator::detail::Stamp> stamp;
};
