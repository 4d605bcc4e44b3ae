// Keys of config.json that Granite models share: Llama's, and a factor of the embedding, the
// softmax scale, a factor of attention and MLP before the residual add, and a divisor of the
// logits.
#pragma once

#include "engine/config/reader.h"
#include "engine/config/schema.h"
#include "transformer/config/model_config.h"

namespace trireme {

void add_granite_keys(Schema& schema);
void read_granite_keys(const ConfigValues& values, ModelConfig& config, ConfigReport& report);
void write_granite_keys(const ModelConfig& config, Json& json);

}  // namespace trireme
