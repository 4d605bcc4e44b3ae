#include "serving/engine/generate.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "commands/command_line.h"
#include "commands/connect.h"
#include "commands/generate.h"
#include "commands/model_option.h"
#include "commands/model_text.h"
#include "commands/rank_options.h"
#include "commands/whole_number.h"
#include "engine/config/json.h"
#include "engine/observe/log.h"
#include "engine/text/conversation.h"
#include "parallel/agree.h"
#include "parallel/device.h"
#include "serving/engine/sampler.h"
#include "transformer/checkpoint/loaded_model.h"
#include "transformer/pass/sharding.h"

namespace trireme {
namespace {

struct GenerateArguments {
  std::string model;
  std::string prompt = "\n";
  bool chat = false;
  std::string chat_template;
  std::string tokenizer;
  GenerateOptions options;
  LayoutOptions layout;
  int threads = 0;  // per rank; 0: its share of the cores
  int samples = 1;
  std::string device = "auto";
  int ranks = 0;
  std::optional<DType> dtype;
  std::optional<BlockFormat> quantization;
  std::string adapter;
  bool allow_non_finite = false;
};

// Tokens of the prompt, rendered as a user message and the generation prompt. Special tokens that
// are spelled in the prompt are plain text.
std::vector<int32_t> encoded_message(const GenerateArguments& args, const LoadedModel& loaded,
                                     const Tokenizer& tokenizer) {
  const ChatTemplate chat(
      loaded.chat_templates(args.chat_template, loaded.tokenizer_spec(args.tokenizer)));
  const Json message = {{"role", "user"}, {"content", args.prompt}};
  const WrittenConversation written =
      ConversationWriter(chat, tokenizer)
          .write({{"messages", Json::array({message})}, {"add_generation_prompt", true}});
  return tokenizer.encode(written.text, {.parse_special = true, .breaks = written.breaks});
}

std::vector<int32_t> encoded_prompt(const GenerateArguments& args, const LoadedModel& loaded,
                                    const Tokenizer& tokenizer) {
  if (args.chat) return encoded_message(args, loaded, tokenizer);
  return tokenizer.encode(args.prompt, {.add_special = loaded.wants_special_tokens()});
}

// Generates one text and prints it on rank 0: the prompt and its continuation, or with --chat only
// the response.
void generate_one(const GenerateArguments& args, const GenerateOptions& options,
                  LoadedModel& loaded, const Tokenizer& tokenizer, Ctx& ctx, bool prints) {
  const std::vector<int32_t> prompt = encoded_prompt(args, loaded, tokenizer);
  const auto has_text = [&](int32_t id) { return !tokenizer.is_control(id); };
  const auto detokenizer = tokenizer.detokenizer(std::ranges::none_of(prompt, has_text));
  const auto print = [&](const DetokenizedText& now) {
    if (!prints) return;
    std::fwrite(now.text.data(), 1, now.text.size(), stdout);
    std::fflush(stdout);
  };
  if (prints && !args.chat) std::fputs(args.prompt.c_str(), stdout);
  generate(loaded.model(), loaded.parameters(), ctx, prompt, options, [&](int32_t id) {
    DetokenizedText now;
    detokenizer->push(id, has_text(id), now);
    print(now);
    return true;
  });
  DetokenizedText last;
  detokenizer->finish(last);
  last.text += "\n";
  print(last);
}

void run_generate(const GenerateArguments& args, const CLI::App& command, const CommandLine& line) {
  before_connecting([&] {
    check_sampling_params(args.options.sampling);
    if (!args.chat_template.empty() && !args.chat) fail_input("--chat-template requires --chat");
    ensure_ranks(args.ranks, line.argc, line.argv);
  });
  const std::unique_ptr<World> world =
      connect_ranks(world_options(CommConfig{}), facts_of_command(command));
  RankDevice device;  // outlives the objects on it
  LoadedModel loaded(args.model, world->world(), args.dtype, args.adapter, args.quantization);
  if (args.allow_non_finite) loaded.allow_non_finite();
  const ModelConfig& model = loaded.config();
  ParallelSizes sizes;
  std::string spec;
  std::unique_ptr<Tokenizer> tokenizer;
  int64_t positions = 0;
  agreed(world->world(), [&] {
    sizes = sizes_of_one_model(args.layout, model, world->size());
    spec = loaded.tokenizer_spec(args.tokenizer);
    tokenizer = loaded.open_tokenizer(spec);
    positions = positions_of(model, encoded_prompt(args, loaded, *tokenizer), args.options);
  });
  device = open_rank_device(*world, args.device, loaded.bundle().device_backend);
  const Groups groups(world->world(), sizes, kv_head_copies(model, sizes.tp));
  Ctx ctx(pin_rank(*world, args.threads), "activations", device.get());
  agreed(world->world(), [&] { loaded.load(ctx, groups.layout, positions); });
  const ChatTemplateSources chat =
      args.chat ? loaded.chat_templates(args.chat_template, spec) : ChatTemplateSources();
  GenerateOptions options = args.options;
  options.stop_tokens = stop_token_ids(spec, *tokenizer, chat);
  options.vocab_size = tokenizer->vocab_size();
  options.groups = &groups;
  for (int n = 0; n < args.samples; ++n) {
    if (n > 0 && world->rank() == 0) std::printf("\n---\n");
    agreed(world->world(),
           [&] { generate_one(args, options, loaded, *tokenizer, ctx, world->rank() == 0); });
    options.sampling.seed =
        seed_of_draw(args.options.sampling.seed, draw_of(0, static_cast<size_t>(n) + 1));
  }
}

}  // namespace

CLI::App* add_generate_command(CLI::App& app, const CommandLine& line) {
  auto args = std::make_shared<GenerateArguments>();
  CLI::App* command = app.add_subcommand("generate", "Generate text with a saved model");
  RowSamplingParams& s = args->options.sampling;
  add_model_option(*command, args->model);
  add_non_finite_option(*command, args->allow_non_finite);
  command->add_option("--prompt", args->prompt, "Text to continue (default: a line break)");
  command->add_flag("--chat", args->chat,
                    "Render the prompt as a user message with the model's chat template, and print "
                    "only the response");
  command
      ->add_option("--chat-template", args->chat_template,
                   "Chat template for --chat: a file, a tokenizer directory that has one, or the "
                   "name of one of the model's templates (default: the model's)")
      ->type_name("PATH");
  command
      ->add_option("--max-new-tokens", args->options.max_new_tokens, "Maximum tokens to generate")
      ->capture_default_str()
      ->check(whole_number(1));
  command
      ->add_option("--temperature", s.temperature,
                   "Sampling temperature; 0: always the most probable token")
      ->capture_default_str();
  command->add_option("--top-k", s.top_k, "Number of most probable tokens to sample from; 0: all")
      ->capture_default_str();
  command
      ->add_option("--top-p", s.top_p,
                   "Cumulative probability of the most probable tokens to sample from; 1: all")
      ->capture_default_str();
  command
      ->add_option("--min-p", s.min_p,
                   "Minimum probability of a token, as a fraction of the most probable one's")
      ->capture_default_str();
  add_adapter_option(*command, args->adapter);
  add_device_option(*command, args->device);
  add_dtype_option(*command, args->dtype);
  add_quantization_option(*command, args->quantization);
  command->add_option("--seed", s.seed, "Seed of sampling")->capture_default_str();
  command->add_option("--samples", args->samples, "Number of completions to generate")
      ->capture_default_str()
      ->check(whole_number(1));
  command->add_option("--tokenizer", args->tokenizer,
                      "Tokenizer: byte, a tokenizer.json, a .model, or a directory with one of "
                      "these (default: the model's)");
  command
      ->add_option("--threads", args->threads,
                   "Threads of each rank (default: its share of the cores)")
      ->check(whole_number(1));
  add_layout_options(*command, args->layout, LayoutUse::kModelOnly);
  command->footer(
      "Several ranks sum in another order than one rank. Where two tokens are almost equally "
      "probable, rounding may therefore change the sampled one, mostly in bfloat16.");
  add_ranks_option(*command, args->ranks);
  command->callback([args, command, line] { run_generate(*args, *command, line); });
  return command;
}

}  // namespace trireme
