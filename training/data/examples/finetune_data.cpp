#include "training/data/examples/finetune_data.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>

#include "engine/core/cpu.h"
#include "engine/core/error.h"
#include "training/data/shuffle.h"
#include "transformer/checkpoint/saved_chat_template.h"

namespace trireme {
namespace {

// Sources of the chat templates: the first that exists of those of a checkpoint, of the
// configuration, of the resumed run, of the model that the run starts from, and of the tokenizer.
// Empty if there are none.
ChatTemplateSources template_sources(const RunConfig& config) {
  if (!config.finetune.recorded_chat_templates.empty())
    return config.finetune.recorded_chat_templates;
  const auto of_model = [&] {
    return chat_templates_of_model(config.checkpoint.load, config.data.tokenizer);
  };
  const std::string& given = config.finetune.chat_template;
  if (!given.empty()) {
    if (std::filesystem::exists(given)) return read_chat_templates(given, {});
    ChatTemplateSources own = of_model();
    own.merge(find_chat_templates(config.data.tokenizer));  // names that a run's copy may not have
    return read_chat_templates(given, own);
  }
  ChatTemplateSources kept = recorded_chat_templates(config.checkpoint.save);
  return kept.empty() ? of_model() : kept;
}

struct Split {
  std::vector<int64_t> train, held_out;
};

Split split_items(int64_t items, double val_size, uint64_t seed) {
  std::vector<int64_t> order(static_cast<size_t>(items));
  std::iota(order.begin(), order.end(), int64_t{0});
  const double wanted = val_size < 1 ? std::ceil(val_size * static_cast<double>(items)) : val_size;
  if (wanted >= static_cast<double>(items))
    fail_input("finetune.val_size ", val_size, " holds out all ", items,
               " examples, expected at least one to train on");
  NumpyRandomState random(static_cast<uint32_t>(seed));
  random.shuffle(std::span<int64_t>(order));
  const auto cut = order.begin() + static_cast<std::ptrdiff_t>(wanted);
  Split split{{cut, order.end()}, {order.begin(), cut}};
  std::ranges::sort(split.train);
  std::ranges::sort(split.held_out);
  return split;
}

void add_warnings(const ExampleSet::Stats& stats, const FinetuneConfig& finetune,
                  std::vector<std::string>& warnings) {
  if (stats.spelling_markup > 0 && !finetune.parse_special)
    warnings.push_back(concat(
        stats.spelling_markup,
        " records that no chat template rendered spell special tokens, which are trained on as "
        "plain text; finetune.parse_special true parses them as tokens"));
  for (const auto& [name, unread] : stats.unread_members)
    warnings.push_back(concat(unread.first, ": a message has text in \"", name.substr(0, 64),
                              "\", which the chat template does not read: it is not trained on (",
                              unread.records, " records)"));
}

}  // namespace

std::shared_ptr<FinetuneData> open_finetune_data(const RunConfig& config, int threads) {
  const FinetuneConfig& finetune = config.finetune;
  const auto tokenizer = load_tokenizer(config.data.tokenizer);
  check_ids_fit(*tokenizer, config.model.vocab_size);
  const ChatTemplateSources chat_templates = template_sources(config);
  const ExampleReader reader(*tokenizer, chat_templates, finetune.assistant_only_loss,
                             finetune.parse_special);
  const ExampleSetOptions options{.sequence_length = config.sequence_length,
                                  .vocab_size = config.model.vocab_size,
                                  .pairs = learns_from_pairs(finetune),
                                  .drop_long = finetune.drop_long,
                                  .threads = threads};
  const auto set = std::make_shared<const ExampleSet>(finetune.train_files, reader, options);
  const Split split = split_items(set->items(), finetune.val_size, config.seed);
  ExampleSource::Options source{.sequence_length = config.sequence_length,
                                .packing = finetune.packing,
                                .shuffle = true,
                                .seed = config.seed,
                                .epochs = finetune.num_train_epochs};
  auto data = std::make_shared<FinetuneData>();
  data->train_set = set;
  data->chat_templates = chat_templates;
  add_warnings(set->stats(), finetune, data->warnings);
  data->train = std::make_unique<ExampleSource>(set, split.train, source);
  data->summary = concat(finetune.train_files.front(),
                         finetune.train_files.size() > 1 ? " and others: " : ": ", set->describe());
  source.shuffle = false;
  if (!finetune.valid_files.empty()) {
    const auto valid = std::make_shared<const ExampleSet>(finetune.valid_files, reader, options);
    std::vector<int64_t> all(static_cast<size_t>(valid->items()));
    std::iota(all.begin(), all.end(), int64_t{0});
    add_warnings(valid->stats(), finetune, data->warnings);
    data->validation_set = valid;
    data->validation = std::make_unique<ExampleSource>(valid, all, source);
  } else if (!split.held_out.empty()) {
    data->validation_set = set;
    data->validation = std::make_unique<ExampleSource>(set, split.held_out, source);
  }
  return data;
}

int64_t count_sequences(const RunConfig& config) {
  return open_finetune_data(config, available_cores())->train->samples_per_epoch();
}

}  // namespace trireme
