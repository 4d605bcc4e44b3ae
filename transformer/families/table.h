// Table of the families, each defined in the file of its name. A new family needs a line here and
// one in the table in family.cpp.
#pragma once

#include "transformer/families/family.h"

namespace trireme {

extern const Family kGpt2Family;
extern const Family kLlamaFamily;
extern const Family kMistralFamily;
extern const Family kQwen2Family;
extern const Family kQwen3Family;
extern const Family kMixtralFamily;
extern const Family kQwen2MoeFamily;
extern const Family kQwen3MoeFamily;
extern const Family kDeepseekFamily;
extern const Family kDeepseekV2Family;
extern const Family kDeepseekV3Family;
extern const Family kGemma3Family;
extern const Family kKimiK2Family;
extern const Family kSmolLm3Family;
extern const Family kGraniteFamily;
extern const Family kOlmo2Family;
extern const Family kOlmo3Family;
extern const Family kSeedOssFamily;
extern const Family kGlmFamily;
extern const Family kGlm4Family;
extern const Family kGlm4MoeFamily;
extern const Family kMiniMaxM2Family;
extern const Family kPhi3Family;
extern const Family kMinistral3Family;
extern const Family kErnie45Family;
extern const Family kExaone4Family;
extern const Family kHunyuanDenseFamily;
extern const Family kGptOssFamily;
extern const Family kGraniteMoeFamily;
extern const Family kGemma2Family;
extern const Family kLlama4Family;

}  // namespace trireme
