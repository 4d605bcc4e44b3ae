// Copy with non-temporal stores, for memory that another core reads next.
#pragma once

#include <cstdint>

namespace trireme {

// memcpy with stores that bypass the caches (without SSE2, a plain memcpy). Other cores were the
// last to read the lines of a shared window, so an ordinary store would first invalidate each line
// in their caches. On processors whose cores share no cache, that is several times slower than
// writing to memory and reading from there. A thread that sees a later store of this thread also
// sees all copied bytes.
void stream_copy(void* to, const void* from, int64_t bytes);

}  // namespace trireme
