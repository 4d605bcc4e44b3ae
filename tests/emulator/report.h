// Abort of a program that misuses CUDA.
#pragma once

namespace emulator::detail {

// Prints "emulator: " and the text to stderr, and aborts.
[[noreturn]] void die(const char* format, ...) __attribute__((format(printf, 1, 2)));

}  // namespace emulator::detail
