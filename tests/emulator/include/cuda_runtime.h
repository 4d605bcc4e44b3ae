// Replacement of the toolkit's header of the same name where CUDA sources are compiled by a plain
// C++ compiler and run on the CPU (tests/emulator/emulator.h).
#pragma once

#include <cuda_runtime_api.h>

#include "tests/emulator/emulator.h"
#include "tests/emulator/kernel_language.h"
#include "tests/emulator/kernel_math.h"
