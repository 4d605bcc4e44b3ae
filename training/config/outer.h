// Section "outer" of the run configuration: its keys, its reader and its writer.
#pragma once

#include "engine/config/reader.h"
#include "engine/config/schema.h"
#include "training/config/run_config.h"

namespace trireme {

void add_outer_keys(Schema& schema);

// Reads the number of sites, which must divide the ranks of the run, and returns the ranks of one.
int read_sites(const ConfigValues& values, int world_size, RunConfig& config, ConfigReport& report);
// Reads the other keys of the section. The layout, ZeRO, the precision and the optimizer must have
// been read.
void read_outer(const ConfigValues& values, RunConfig& config, ConfigReport& report);

// Whether the momentum is the default of the algorithm with this number of sites.
bool has_default_momentum(const OuterConfig& outer);

// Line of the log: sites, algorithm, period and code of the updates. ranks: of one site.
std::string describe_outer(const OuterConfig& outer, int ranks);

// Section of the resolved configuration.
Json outer_to_json(const OuterConfig& outer);

}  // namespace trireme
