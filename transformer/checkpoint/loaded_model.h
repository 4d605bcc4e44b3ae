// A model loaded from a run directory, a checkpoint or third-party files, for evaluation and
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

// Before weights are loaded beside others: InputError where `free` bytes of the host's memory
// (engine/core/host_memory.h) do not hold `needed` more, with which the kernel would end the
// process.
void check_room_beside(int64_t needed, int64_t free);

class LoadedModel {
 public:
  // Reads the configuration of the newest whole checkpoint of a run directory, or of that
  // checkpoint, with a warning for each that is passed over. Collective over the ranks that will
  // hold the model, and so are its failures (parallel/agree.h). Or opens a model of others
  // (transformer/formats/model_source.h) and checks that its tensors are those of its
  // configuration. dtype: to compute in; absent: that of the checkpoint. adapter: a directory of
  // PEFT's, for the model; empty: none. quantization: weights of linear layers in blocks of that
  // kind, the head in 8 bits (parallel/block_weights.h). modules: such directories as `adapter`,
  // among which every token of a pass chooses (transformer/formats/peft/stacked_adapters.h). room:
  // for others that come later; without it none do.
  LoadedModel(const std::string& path, Communicator& group, std::optional<DType> dtype = {},
              const std::string& adapter = "", std::optional<BlockFormat> quantization = {},
              const std::vector<std::string>& modules = {}, const AdapterRoom& room = {});
  // Makes weights that are not finite a warning; they are refused otherwise.
  void allow_non_finite() { allows_non_finite_ = true; }
  // Reads the parameters that a rank at this place of a layout holds, and readies the model for
  // sequences of `positions` tokens. InputError when the tensors do not fit the configuration, and
  // that names the first one which is not finite.
  void load(Ctx& ctx, const Layout& layout, int64_t positions);
  // Opens other weights for this model, of a path as above, without taking any in: InputError that
  // names every difference where they are for another model. They are computed in the dtype of this
  // one, and quantised as it is. This one's adapters stay, unless they came with its checkpoint;
  // then the others have some of their own. Any thread.
  std::unique_ptr<LoadedModel> open_next(const std::string& path) const;
  // The weights of `next`, which open_next() gave and load() filled on the host, at the same place
  // of the same layout, become this one's; `next` has no use from then on. Nobody computes
  // meanwhile.
  void take_weights(Ctx& ctx, LoadedModel& next);

  // Opens an adapter for a slot of the room, in the place of the one there, and reads it where the
  // model is loaded:
  // InputError for what is wrong with it, numbers that are not finite included. Any thread; nothing
  // changes.
  struct StagedAdapter {
    AdapterColumns columns;
    std::unique_ptr<ParameterStore> store;  // on the host, of the room's rank: its factors alone
  };
  std::unique_ptr<StagedAdapter> stage_adapter(size_t slot, const std::string& path) const;
  // Tokens of its columns are computed with it from now on. Nobody computes meanwhile.
  void take_adapter(Ctx& ctx, const StagedAdapter& staged);
  const std::string& checkpoint() const { return checkpoint_; }
  const ModelBundle& bundle() const { return bundle_; }
  const ModelConfig& config() const { return bundle_.model; }
  const Model& model() const { return *model_; }
  ParameterStore& parameters() { return *store_; }
  int64_t step() const { return step_; }
  const std::vector<AdapterColumns>& module_columns() const { return module_columns_; }
  // Whether prompts get the special tokens that the tokenizer adds: for third-party models, and for
  // ours that started from their weights or were fine-tuned.
  bool wants_special_tokens() const { return bundle_.lineage.special_tokens; }
  // The tokenizer's path, or "byte": what is asked for, else the model's own. InputError where
  // there is neither.
  std::string tokenizer_spec(const std::string& asked) const;
  // InputError where it has ids that the model does not.
  std::unique_ptr<Tokenizer> open_tokenizer(const std::string& spec) const;
  // The chat templates: what `given` names unless it is empty (read_chat_templates()), else those
  // that the model was fine-tuned with, else those of `tokenizer` (a path). InputError where there
  // is none.
  ChatTemplateSources chat_templates(const std::string& given, const std::string& tokenizer) const;
  // The same; empty where there is none.
  ChatTemplateSources find_chat_templates(const std::string& given,
                                          const std::string& tokenizer) const;

 private:
  void open(std::optional<DType> dtype, bool quantizes);
  void add_adapter(const std::string& adapter);
  void add_modules(const std::vector<std::string>& modules, const AdapterRoom& room);
  void check_quantization() const;
  void check_finite(Ctx& ctx) const;
  std::string differences(const LoadedModel& next) const;
  std::string path_;  // as it was named
  std::string checkpoint_;
  std::optional<BlockFormat> quantization_;
  ModelBundle bundle_;                   // dtype: to compute in
  std::unique_ptr<ModelSource> source_;  // absent: a checkpoint in the dtype it was saved in
  std::unique_ptr<ModelSource>
      adapters_;  // of a checkpoint that holds nothing else; source_ is their base
  std::vector<AdapterColumns> module_columns_;
  AdapterRoom room_;
  bool allows_non_finite_ = false;
  bool has_own_adapters_ = false;  // they are no part of the checkpoint
  std::string merged_adapter_;     // one that is merged into the weights as they are read
  int64_t step_ = 0;
  std::unique_ptr<Model> model_;
  std::unique_ptr<ParameterStore> store_;
};

}  // namespace trireme
