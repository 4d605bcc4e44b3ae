// Copy to memory that another core reads next.
#pragma once

#include <cstdint>

namespace trireme {

// memcpy with stores that bypass the caches. The lines of a shared window were last read by other
// cores, and an ordinary store must first take each line back from them. On processors whose cores
// share no cache, that is several times slower than writing to memory and reading from there. All
// copied bytes are visible to any thread that sees a later store of this thread.
void stream_copy(void* to, const void* from, int64_t bytes);

}  // namespace trireme
