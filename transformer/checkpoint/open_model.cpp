#include "transformer/checkpoint/open_model.h"

#include <utility>

#include "engine/core/error.h"
#include "transformer/checkpoint/checkpoint_model.h"
#include "transformer/checkpoint/find_checkpoint.h"
#include "transformer/formats/merged_model.h"
#include "transformer/formats/peft/peft_adapter.h"

namespace trireme {

std::unique_ptr<ModelSource> open_found_model(const std::string& place) {
  if (is_model_source(place)) return open_model_source(place);
  auto model = std::make_unique<CheckpointModel>(place);
  const LoraConfig lora = model->bundle().lora;
  if (!lora.enabled()) return model;
  std::unique_ptr<ModelSource> base = open_found_model(find_base(place, model->bundle().load));
  return std::make_unique<MergedModel>(std::move(base), std::move(model), lora);
}

std::unique_ptr<ModelSource> open_any_model(const std::string& path) {
  return open_found_model(find_model(path));
}

std::unique_ptr<ModelSource> open_described_model(const std::string& saved,
                                                  const std::string& path) {
  for (const std::string& run : {saved, path})
    if (const std::string checkpoint = newest_checkpoint_at(run); !checkpoint.empty())
      return std::make_unique<CheckpointModel>(checkpoint);
  return open_any_model(path);
}

std::unique_ptr<ModelSource> open_merged_model(const std::string& base,
                                               const std::string& adapters) {
  if (is_peft_adapter(adapters)) {
    std::unique_ptr<ModelSource> model = open_any_model(base);
    auto peft = std::make_unique<PeftAdapter>(adapters);
    peft->check_adapters(model->config());
    const LoraConfig lora = peft->lora();
    return std::make_unique<MergedModel>(std::move(model), std::move(peft), lora);
  }
  auto run = std::make_unique<CheckpointModel>(find_model(adapters));
  const LoraConfig lora = run->bundle().lora;
  if (!lora.enabled())
    fail_input(
        adapters,
        " holds no adapters: neither PEFT's adapter_config.json nor a run that trained some");
  std::unique_ptr<ModelSource> model = open_found_model(find_base_at(base, run->path()));
  if (!(run->config() == model->config()))
    fail_input(adapters, ": its adapters are for another model than ", base);
  return std::make_unique<MergedModel>(std::move(model), std::move(run), lora);
}

}  // namespace trireme
