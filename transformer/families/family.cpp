#include "transformer/families/family.h"

#include <algorithm>
#include <vector>

#include "engine/core/error.h"
#include "transformer/families/foreign_keys.h"
#include "transformer/families/table.h"

namespace trireme {
namespace {

constexpr const Family* kFamilies[] = {
    &kGpt2Family,       &kLlamaFamily,      &kMistralFamily,      &kQwen2Family,
    &kQwen3Family,      &kMixtralFamily,    &kQwen2MoeFamily,     &kQwen3MoeFamily,
    &kDeepseekFamily,   &kDeepseekV2Family, &kDeepseekV3Family,   &kGemma3Family,
    &kKimiK2Family,     &kSmolLm3Family,    &kGraniteFamily,      &kOlmo2Family,
    &kOlmo3Family,      &kSeedOssFamily,    &kGlmFamily,          &kGlm4Family,
    &kGlm4MoeFamily,    &kMiniMaxM2Family,  &kPhi3Family,         &kMinistral3Family,
    &kErnie45Family,    &kExaone4Family,    &kHunyuanDenseFamily, &kGptOssFamily,
    &kGraniteMoeFamily, &kGemma2Family,     &kLlama4Family};

Schema made(const Family& family) {
  Schema schema(concat(family.title, " (model_type \"", family.model_type, "\")"));
  schema.choice("model_type", family.model_type, {family.model_type}, "the family of the model");
  family.add_keys(schema);
  add_foreign_keys(family, schema);
  schema.finish();
  return schema;
}

size_t place_of(ModelFamily id) {
  const auto* const found =
      std::ranges::find_if(kFamilies, [&](const Family* f) { return f->id == id; });
  TRIREME_CHECK(found != std::end(kFamilies), "model family ", static_cast<int>(id),
                " is not in the table");
  return static_cast<size_t>(found - std::begin(kFamilies));
}

constexpr MultimodalModel kMultimodal[] = {
    {"gemma3", "Gemma3ForConditionalGeneration", "gemma3_text"},
    {"llama4", "Llama4ForConditionalGeneration", "llama4_text"},
    {"mistral3", "Mistral3ForConditionalGeneration", "mistral"}};

}  // namespace

const MultimodalModel* find_multimodal(const std::string& model_type) {
  const auto* const found = std::ranges::find_if(
      kMultimodal, [&](const MultimodalModel& model) { return model_type == model.model_type; });
  return found == std::end(kMultimodal) ? nullptr : found;
}

std::span<const Family* const> families() { return kFamilies; }

const Family& family_of(ModelFamily id) { return *kFamilies[place_of(id)]; }

const Family* find_family(const std::string& model_type) {
  const auto* const found =
      std::ranges::find_if(kFamilies, [&](const Family* f) { return model_type == f->model_type; });
  return found == std::end(kFamilies) ? nullptr : *found;
}

const Schema& model_schema(ModelFamily id) {
  static const std::vector<Schema> schemas = [] {
    std::vector<Schema> out;
    for (const Family* family : kFamilies) out.push_back(made(*family));
    return out;
  }();
  return schemas[place_of(id)];
}

}  // namespace trireme
