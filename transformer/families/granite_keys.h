// Keys of config.json that Granite models share: Llama's, and factors of the embedding, of the
// softmax and of the branches, and a divisor of the logits.
#pragma once

#include "engine/config/reader.h"
#include "engine/config/schema.h"
#include "transformer/config/model_config.h"

namespace trireme {

void add_granite_keys(Schema& schema);
void read_granite_keys(const ConfigValues& values, ModelConfig& config, ConfigReport& report);
void write_granite_keys(const ModelConfig& config, Json& json);

}  // namespace trireme
