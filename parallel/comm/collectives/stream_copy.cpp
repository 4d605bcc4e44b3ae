#include "parallel/comm/collectives/stream_copy.h"

#include <cstddef>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace trireme {

#if defined(__SSE2__)

void stream_copy(void* to, const void* from, int64_t bytes) {
  constexpr int64_t kLine = 64;
  auto* out = static_cast<std::byte*>(to);
  const auto* in = static_cast<const std::byte*>(from);
  // Copies up to the first full line; only whole lines are written without being read first.
  int64_t head = (kLine - static_cast<int64_t>(reinterpret_cast<uintptr_t>(to) % kLine)) % kLine;
  if (head > bytes) head = bytes;
  if (head > 0) std::memcpy(out, in, static_cast<size_t>(head));
  int64_t i = head;
  for (; i + kLine <= bytes; i += kLine) {
    const auto* source = reinterpret_cast<const __m128i*>(in + i);
    auto* line = reinterpret_cast<__m128i*>(out + i);
    const __m128i a = _mm_loadu_si128(source), b = _mm_loadu_si128(source + 1);
    const __m128i c = _mm_loadu_si128(source + 2), d = _mm_loadu_si128(source + 3);
    _mm_stream_si128(line, a);
    _mm_stream_si128(line + 1, b);
    _mm_stream_si128(line + 2, c);
    _mm_stream_si128(line + 3, d);
  }
  if (i < bytes) std::memcpy(out + i, in + i, static_cast<size_t>(bytes - i));
  _mm_sfence();
}

#else

void stream_copy(void* to, const void* from, int64_t bytes) {
  if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
}

#endif

}  // namespace trireme
