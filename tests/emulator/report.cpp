#include "tests/emulator/report.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>

namespace emulator::detail {

void die(const char* format, ...) {
  char text[2000];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  std::fprintf(stderr, "emulator: %s\n", text);
  std::fflush(stderr);
  std::abort();
}

}  // namespace emulator::detail
