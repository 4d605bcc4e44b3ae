// Copy to memory that another processor core will read next.
#pragma once

#include <cstdint>

namespace trireme {

// memcpy whose writes go past the caches. The lines of a shared window were last read by other
// cores; an ordinary write has to take each line back from them first, which on processors whose
// cores do not share a cache is several times slower than writing to memory and reading from there.
// Everything written is visible to whoever sees a later store of this thread.
void stream_copy(void* to, const void* from, int64_t bytes);

}  // namespace trireme
