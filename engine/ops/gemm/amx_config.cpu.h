// Memory that _tile_loadconfig reads (Intel's manual, LDTILECFG): eight tiles of 16 rows of 64
// bytes.
#pragma once

#include <cstdint>

namespace trireme::cpu {
namespace {

struct alignas(64) AmxConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

}  // namespace
}  // namespace trireme::cpu
