// Section "compression" of the run configuration: its keys, its reader and its writer.
#pragma once

#include "engine/config/reader.h"
#include "engine/config/schema.h"
#include "training/config/run_config.h"

namespace trireme {

void add_compression_keys(Schema& schema);

// Reads the keys of the section. The layout, ZeRO's stage, the precision and the optimizer must
// have been read. An optimizer whose moments are exchanged sets the warm-up, and without a method
// quantize; its bits are 1 by default. With method none it gets exact gradients.
void read_compression(const ConfigValues& values, RunConfig& config, ConfigReport& report);

// Section of the resolved configuration: the keys that the methods use.
Json compression_to_json(const RunConfig& config);

}  // namespace trireme
