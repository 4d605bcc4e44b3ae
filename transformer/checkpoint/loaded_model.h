// Model loaded from a run directory, a checkpoint or third-party files, for evaluation and
// generation.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/text/tokenizer.h"
#include "transformer/checkpoint/model_bundle.h"
#include "transformer/formats/model_source.h"
#include "transformer/formats/peft/stacked_adapters.h"

namespace trireme {

class Communicator;
struct Ctx;

// Checks host memory before new weights are loaded next to those in use: InputError if `free` bytes
// (engine/core/host_memory.h) are less than `needed`. Without the check the kernel's OOM killer
// would end the process.
void check_memory_for_reload(int64_t needed, int64_t free);

class LoadedModel {
 public:
  // Reads the configuration of a checkpoint, or of the newest whole one of a run directory, with a
  // warning for each newer one that was skipped; or opens a third-party model
  // (transformer/formats/model_source.h) and checks that its tensors match its configuration. For a
  // checkpoint of adapters also opens their base (find_base() in lineage.h).
  // Collective over the ranks that will hold the model, and so are its failures (parallel/agree.h).
  // dtype: of the computation; absent: ModelBundle::dtype. adapter: PEFT directory; empty: none;
  // with one, modules and adapter_slots have no effect. quantization: block format of the weights
  // of linear layers, where the head is quantized to 8 bits (parallel/quantized_weights.h); absent:
  // none. modules: PEFT directories of which each token of a pass selects at most one
  // (transformer/formats/peft/stacked_adapters.h). adapter_slots: slots for the modules, in order,
  // an empty name for an empty slot, and for adapters loaded later; default: none. InputError for
  // adapters if the checkpoint has its own.
  LoadedModel(const std::string& path, Communicator& group, std::optional<DType> dtype = {},
              const std::string& adapter = "", std::optional<BlockFormat> quantization = {},
              const std::vector<std::string>& modules = {}, const AdapterSlots& adapter_slots = {});
  // Makes load() warn about weights that are not finite instead of failing. Adapters that the
  // constructor was given must be finite in any case, unless they are merged into the weights.
  void allow_non_finite() { allows_non_finite_ = true; }
  // Reads the parameters that a rank with this layout holds, and prepares the model for sequences
  // of `positions` tokens. InputError if the tensors do not fit the configuration, or if a
  // parameter is not finite: the error names the first one.
  void load(Ctx& ctx, const Layout& layout, int64_t positions);
  // Opens the weights at `path` (as in the constructor) as a replacement for this model's, without
  // reading them, with this model's compute dtype and quantization. InputError listing every
  // difference if they belong to another model. Adapters that this model's constructor was given
  // stay; the new checkpoint must then have none. Adapters that are part of this model's checkpoint
  // are replaced; the new checkpoint must then have adapters with an equal LoraConfig
  // (transformer/layers/lora.h). Any thread.
  std::unique_ptr<LoadedModel> open_next(const std::string& path) const;
  // Replaces this model's weights by those of `next`, which open_next() returned and load() filled
  // on the host, with the same layout. Afterwards checkpoint() and step() are those of `next`. No
  // pass may run during the call.
  void replace_weights(Ctx& ctx, LoadedModel& next);

  // Opens an adapter for a slot, an index of module_columns(), and, if the model is loaded, reads
  // its factors; install_adapter() then replaces the slot's adapter by it. InputError for invalid
  // adapters and for values that are not finite. Changes nothing in this model. Any thread.
  struct StagedAdapter {
    AdapterColumns columns;  // of the slot
    // Factors only, on the host, padded to the slot's rank. nullptr: the model was not loaded.
    std::unique_ptr<ParameterStore> store;
  };
  std::unique_ptr<StagedAdapter> stage_adapter(size_t slot, const std::string& path) const;
  // Copies a staged adapter into the columns of its slot. No pass may run during the call. No
  // effect without a store.
  void install_adapter(Ctx& ctx, const StagedAdapter& staged);
  // Step directory, or path of the third-party model.
  const std::string& checkpoint() const { return checkpoint_; }
  const ModelBundle& bundle() const { return bundle_; }
  const ModelConfig& config() const { return bundle_.model; }
  const Model& model() const { return *model_; }    // after load()
  ParameterStore& parameters() { return *store_; }  // after load()
  int64_t step() const { return step_; }            // 0: a third-party model
  // Inner (rank) columns of each module, or of each slot if there are slots.
  const std::vector<AdapterColumns>& module_columns() const { return module_columns_; }
  // Returns whether prompts get the special tokens that the tokenizer adds: true for third-party
  // models, for Trireme models that were initialized from them or fine-tuned, and with an adapter.
  bool wants_special_tokens() const { return bundle_.lineage.special_tokens; }
  // Tokenizer path, or "byte": `asked`, else the model's own. InputError if both are empty.
  std::string tokenizer_spec(const std::string& asked) const;
  // InputError if the tokenizer has ids beyond the model's vocabulary.
  std::unique_ptr<Tokenizer> open_tokenizer(const std::string& spec) const;
  // Chat templates: those that `given` names (read_chat_templates() in
  // engine/text/chat_template_sources.h; empty: none), else those that the model was fine-tuned
  // with, else those of `tokenizer` (a path). InputError if there are none.
  ChatTemplateSources chat_templates(const std::string& given, const std::string& tokenizer) const;
  // The same; empty if there are none.
  ChatTemplateSources find_chat_templates(const std::string& given,
                                          const std::string& tokenizer) const;

 private:
  void open(std::optional<DType> dtype, bool quantizes);
  void add_adapter(const std::string& adapter);
  void add_modules(const std::vector<std::string>& modules, const AdapterSlots& adapter_slots);
  void check_quantization() const;
  void check_finite(Ctx& ctx) const;
  std::string differences(const LoadedModel& next) const;
  std::string path_;  // as given
  std::string checkpoint_;
  std::optional<BlockFormat> quantization_;
  ModelBundle bundle_;                   // dtype: of the computation
  std::unique_ptr<ModelSource> source_;  // absent: a checkpoint that is read in its own dtype
  // Adapters on top of source_: a Trireme checkpoint of adapters, or PEFT files. Absent: none, or
  // merged into source_.
  std::unique_ptr<ModelSource> adapters_;
  std::vector<AdapterColumns> module_columns_;
  AdapterSlots adapter_slots_;
  bool allows_non_finite_ = false;
  bool has_own_adapters_ = false;  // not part of the checkpoint
  std::string merged_adapter_;     // PEFT directory, merged into the weights as they are read
  int64_t step_ = 0;
  std::unique_ptr<Model> model_;
  std::unique_ptr<ParameterStore> store_;
};

}  // namespace trireme
