#include "commands/serving/serve.h"

#include <CLI/CLI.hpp>
#include <chrono>
#include <ctime>
#include <set>
#include <thread>

#include "commands/command_line.h"
#include "commands/config_file.h"
#include "commands/connect.h"
#include "commands/model_option.h"
#include "commands/model_text.h"
#include "commands/rank_options.h"
#include "commands/serving/listener_options.h"
#include "commands/serving/speculative_config.h"
#include "commands/stop_signals.h"
#include "commands/version.h"
#include "commands/whole_number.h"
#include "engine/core/cpu.h"
#include "engine/core/heap_trim.h"
#include "engine/core/thread_name.h"
#include "engine/observe/log.h"
#include "parallel/agree.h"
#include "parallel/comm/launcher_environment.h"
#include "parallel/launch.h"
#include "serving/http/server/server.h"
#include "serving/http/service/service.h"
#include "serving/model/front_model.h"
#include "serving/model/rank_model.h"
#include "serving/web_ui/web_ui.h"

namespace trireme {
namespace {

using std::chrono::milliseconds;

constexpr int kMaxRanks = 4096;

struct ServeArguments {
  ServedModelOptions model;
  ListenerOptions listener;
  std::string model_as_named;
  std::vector<std::string> names;
  std::vector<std::string> modules;  // names in model.modules
  std::string chat_template, policy = "fcfs", tool_format;
  int64_t waiting_tokens = INT64_MAX;
  bool old_metrics = false;
  std::string speculative;  // JSON, source of `speculation`
  SpeculationConfig speculation;
};

ServiceConfig service_config(const ServeArguments& args, ServedModel& model,
                             const ChatTemplateSources& chat) {
  ServiceConfig config;
  for (const std::string& name : args.names)
    config.models.push_back({.id = name,
                             .created = std::time(nullptr),
                             .max_model_len = model.limits().length,
                             .root = args.model.model});
  for (size_t i = 0; i < args.modules.size(); ++i)
    config.models.push_back({.id = args.modules[i],
                             .created = std::time(nullptr),
                             .max_model_len = model.limits().length,
                             .root = args.model.modules[i],
                             .parent = args.names.front(),
                             .adapter = static_cast<int32_t>(i)});
  config.version = version_number();
  config.fingerprint = concat("trireme-", version_number(), "-step-", model.loaded().step());
  config.max_model_len = model.limits().length;
  config.embedding_size = model.loaded().config().hidden_size;
  config.eos_token_ids = stop_token_ids(model.tokenizer_spec(), model.tokenizer(), chat);
  config.adds_special = model.loaded().wants_special_tokens();
  const int64_t running = model.limits().sequences * static_cast<int64_t>(model.replicas());
  config.admission = {
      .running = running,
      .waiting = 4 * running,
      .waiting_tokens = args.waiting_tokens,
      .several_tenants = args.listener.keys.size() + args.listener.admin_keys.size() > 1};
  config.requests.has_priorities = args.policy == "priority";
  config.requests.sequences =
      std::min(config.requests.sequences, config.admission.max_request_sequences());
  config.requests.vocab_size = model.tokenizer().vocab_size();
  config.tools =
      args.tool_format.empty() ? tool_format_of_templates(chat) : tool_format(args.tool_format);
  config.weights = &model;
  config.adapters = args.model.adapter_slots.count;
  config.output_vocab_size = model.loaded().config().vocab_size;
  return config;
}

// Waits for a stop signal. Throws Error if the engine of the model, or of one replica, has failed.
void wait_for_the_end(Replicas& engines, const ServedModel& model, HttpServer& server) {
  HeapTrim heap;
  while (StopSignals::count() == 0) {
    heap.poll();
    for (size_t replica = 0; replica < engines.size(); ++replica) {
      const Failure failure = engines[replica].failure();
      if (failure.empty() || model.recovers_from(failure.cause)) continue;
      engines.stop();                    // those of healthy replicas too
      server.drain(milliseconds(2000));  // clients receive errors
      throw Error(concat("engine failed: ", failure.why));
    }
    std::this_thread::sleep_for(milliseconds(50));
  }
}

void drain(const ServeArguments& args, Replicas& engines, Service& service, HttpServer& server) {
  service.admission().close("shutting_down", "the server is shutting down");
  if (drain_requests(args.listener, server)) return;
  engines.stop();
  server.drain(milliseconds(2000));
}

// Registers the engines with the model while both exist.
class AttachedEngines {
 public:
  AttachedEngines(ServedModel& model, Replicas& engines) : model_(model) {
    model.attach_engines(&engines);
  }
  ~AttachedEngines() { model_.attach_engines(nullptr); }
  AttachedEngines(const AttachedEngines&) = delete;
  AttachedEngines& operator=(const AttachedEngines&) = delete;

 private:
  ServedModel& model_;
};

CacheInfo cache_info(const ServeArguments& args, ServedModel& model) {
  const ModelConfig& shape = model.loaded().config();
  const KvType kept = args.model.kv_type.value_or(KvType{model.dtype()});
  const int ranks = std::max({1, args.model.ranks, detect_launcher().ranks});
  return {
      .block_size = model.limits().block_tokens,
      .blocks = model.limits().blocks,
      .dtype = text(kept),
      .speculation = args.speculation.tokens > 0,
      .old_names = args.old_metrics,
      .cost = inference_cost(shape, quantized_weight_bytes(args.model.quantization, model.dtype()),
                             row_bytes(kept, shape.head_dim)),
      .ranks = ranks / static_cast<int>(model.replicas())};
}

Replicas start_engines(const ServeArguments& args, ServedModel& model, ServingMetrics& metrics) {
  const StepLimits& limits = model.limits();
  const BatchingConfig config{.max_sequences = limits.sequences,
                              .max_step_tokens = limits.tokens,
                              .max_model_len = limits.length,
                              .windows = limits.windows,
                              .speculation = args.speculation};
  std::vector<std::unique_ptr<Engine>> engines;
  for (size_t replica = 0; replica < model.replicas(); ++replica) {
    EngineMetrics& engine_metrics = metrics.of(replica);
    engines.push_back(std::make_unique<Engine>(
        model.make_executor(replica), config, limits.blocks, limits.block_tokens,
        [&engine_metrics](const StepReport& report) { engine_metrics.step(report); },
        model.make_drafter()));
    engines.back()->between_steps([&] {
      if (model.replicas() > 1) name_thread("engine", replica);
      model.move_here();
    });
  }
  // 64 for the default number of sequences, as in SGLang's router.
  const BalanceRule rule{.absolute = std::max<int64_t>(limits.sequences / 4, 1)};
  return Replicas(std::move(engines), rule);
}

void log_model(const ServeArguments& args, ServedModel& model, bool chats) {
  const StepLimits& limits = model.limits();
  const KvType kept = args.model.kv_type.value_or(KvType{model.dtype()});
  log_info("model ", args.model.model, " as ", args.names.front(), ", ", text(model.dtype()),
           ", weights in ", quantization_name(args.model.quantization, model.dtype()), ", on ",
           model.device());
  log_info("sequences of at most ", limits.length, " tokens, ", limits.sequences,
           " at a time; KV cache of ", limits.blocks, " blocks of ", limits.block_tokens,
           " tokens in ", text(kept), ", enough for ", limits.blocks / limits.blocks_of_sequence(),
           " of that length; chat template: ", chats ? "yes" : "no");
  if (!args.model.draft.empty())
    log_info("draft model ", args.model.draft, ", ", args.speculation.tokens,
             " draft tokens per step");
}

void serve(const ServeArguments& args, ServedModel& model) {
  std::unique_ptr<ChatTemplate> chat;
  const ChatTemplateSources sources =
      model.loaded().find_chat_templates(args.chat_template, model.tokenizer_spec());
  if (!sources.empty()) chat = std::make_unique<ChatTemplate>(sources);
  ServingMetrics metrics(args.names.front(), model.limits().length, cache_info(args, model),
                         model.replicas());
  // Only the engines' threads are pinned; this and later threads may use all cores.
  allow_cores(0, available_cores());
  Replicas engines = start_engines(args, model, metrics);
  const AttachedEngines attached(model, engines);
  Service service(engines, model.tokenizer(), chat.get(), metrics,
                  service_config(args, model, sources));
  const StopSignals signals;
  Routes routes = service.routes();
  add_web_ui(routes);
  HttpServer server(http_config(args.listener), std::move(routes),
                    [&](const RequestSummary& summary) { service.count(summary); });
  log_model(args, model, chat != nullptr);
  print_listening(args.listener, server.port());
  wait_for_the_end(engines, model, server);
  drain(args, engines, service, server);
}

// Parses "NAME=DIR" values of --lora-modules.
void split_modules(ServeArguments& args) {
  if ((!args.modules.empty() || args.model.adapter_slots.count > 0) && !args.model.adapter.empty())
    fail_input("--adapter and ", args.modules.empty() ? "--max-loras" : "--lora-modules",
               " cannot be combined: give all as --lora-modules");
  if (args.model.adapter_slots.count == 0) args.model.adapter_slots = {};
  std::set<std::string> names(args.names.begin(), args.names.end());
  for (std::string& module : args.modules) {
    const size_t at = module.find('=');
    if (at == 0 || at == std::string::npos || at + 1 == module.size())
      fail_input("--lora-modules ", module, ": expected NAME=DIRECTORY");
    args.model.modules.push_back(module.substr(at + 1));
    module.resize(at);
    if (!names.insert(module).second)
      fail_input("--lora-modules ", module, ": another model is served under this name");
  }
}

// Serves under a launcher: rank 0 serves, the others are follower ranks until it ends. Launchers
// send signals to all ranks; only rank 0 handles them.
void serve_under_launcher(const ServeArguments& args) {
  if (detect_launcher().rank != 0) StopSignals::leave_to_others();
  RankModel model(args.model);
  if (model.leads())
    serve(args, model);
  else
    model.follow();
}

void read_speculation(ServeArguments& args) {
  SpeculativeOptions options = read_speculative_config(args.speculative);
  args.speculation = options.config;
  args.model.draft = std::move(options.draft);
  args.model.draft_sequences = options.config.max_running_sequences;
}

// Sets the number of ranks that the parallel sizes need, since vLLM has no option for it.
void count_ranks(ServedModelOptions& model, const LauncherInfo& launcher) {
  const ParallelSizes& sizes = model.layout.sizes;
  if (launcher.kind != Launcher::kNone) {
    if (model.replicas > 1)
      fail_input(
          "--data-parallel-size ", model.replicas, ": the ranks of ", launcher.name,
          " hold one copy of the model; start replicas with `trireme serve --ranks N` without a "
          "launcher, or start one server for each and `trireme route` in front of them");
    return;
  }
  const int64_t needed = int64_t{sizes.tp} * sizes.pp * model.replicas;
  if (model.ranks > 0 || needed == 1) return;
  if (needed > kMaxRanks)
    fail_input("--tensor-parallel-size ", sizes.tp, " x --pipeline-parallel-size ", sizes.pp,
               " x --data-parallel-size ", model.replicas, ": expected at most ", kMaxRanks,
               " ranks");
  model.ranks = static_cast<int>(needed);
}

void run(ServeArguments args, const CLI::App& command, const CommandLine& line) {
  if (args.names.empty()) args.names = {args.model_as_named};
  split_modules(args);
  read_speculation(args);
  args.model.world = world_options(CommConfig{});
  args.model.facts = facts_of_command(command);
  if (const std::string leader = leader_from_environment(); !leader.empty()) {
    StopSignals::leave_to_others();
    return serve_as_rank(args.model, leader);
  }
  const LauncherInfo launcher = detect_launcher();
  before_connecting([&] {
    count_ranks(args.model, launcher);
    if (launcher.kind != Launcher::kNone) ensure_ranks(args.model.ranks, line.argc, line.argv);
    check_groups(rank_launcher(args.model.launcher), args.model.replicas);
    read_key_files(args.listener);
    // Reports an invalid address before minutes of loading.
    if (launcher.rank == 0) HttpServer(http_config(args.listener), Routes()).stop();
  });
  if (launcher.kind != Launcher::kNone || args.model.ranks == 0) return serve_under_launcher(args);
  FrontModel model(args.model, own_command(line.argc, line.argv));
  serve(args, model);
}

void add_server_options(CLI::App& command, ServeArguments& args) {
  command
      .add_option("--served-model-name", args.names,
                  "Model id in requests (repeatable; default: the path as given)")
      ->take_all()
      ->allow_extra_args(false);
  command.add_flag("--show-hidden-metrics", args.old_metrics,
                   "Export metrics under vLLM's old names too, for dashboards that still use them");
  add_listener_options(command, args.listener);
  add_admin_key_options(command, args.listener);
}

void add_scheduling_option(CLI::App& command, ServeArguments& args) {
  command
      .add_option("--scheduling-policy", args.policy,
                  "Order of waiting requests: fcfs: first come, first served; priority: lower "
                  "`priority` of a request first")
      ->capture_default_str()
      ->check(CLI::IsMember({"fcfs", "priority"}));
  command
      .add_option("--max-waiting-tokens", args.waiting_tokens,
                  "Maximum prompt tokens of waiting requests; further requests are refused, except "
                  "that one of any length is accepted while no other waits (default: only their "
                  "number is limited)")
      ->check(whole_number(1));
}

void add_speculation_option(CLI::App& command, std::string& json) {
  command
      .add_option(
          "--speculative-config", json,
          "Speculative decoding: {\"method\": \"ngram\", \"num_speculative_tokens\": 4}: "
          "draft tokens copied from earlier tokens of the sequence (prompt lookup); {\"method\": "
          "\"draft_model\", \"model\": \"DIRECTORY\", \"num_speculative_tokens\": 4}: "
          "draft tokens from a smaller model (docs/guide/serving.md)")
      ->type_name("JSON");
}

void add_size_options(CLI::App& command, ServedModelOptions& model) {
  command
      .add_option(
          "--max-model-len", model.max_model_len,
          "Maximum tokens of prompt and completion together (default: the model's maximum length)")
      ->check(whole_number(1));
  command
      .add_option("--max-num-seqs", model.max_num_seqs,
                  "Maximum sequences that run concurrently on each replica (default: 256, at most "
                  "--max-num-batched-tokens); four times as many may wait")
      ->check(whole_number(1));
  command
      .add_option("--max-num-batched-tokens", model.max_batched_tokens,
                  "Maximum tokens per step, at least --max-num-seqs; longer prompts are prefilled "
                  "in chunks (default: 512, on a GPU 2048)")
      ->check(whole_number(1));
  command
      .add_option("--kv-cache-memory-bytes", model.cache_bytes,
                  "KV cache of each rank, in bytes (default: enough for all sequences, at most 4 "
                  "GiB; on a GPU: what --gpu-memory-utilization leaves)")
      ->check(whole_number(1));
  const auto is_share = [](const std::string& word) {
    double share = 0;
    const bool good = CLI::detail::lexical_cast(word, share) && share > 0 && share <= 1;
    return good ? std::string() : concat(word, ": expected a fraction above 0 and at most 1");
  };
  command
      .add_option("--gpu-memory-utilization", model.gpu_share,
                  "Fraction of GPU memory for weights and KV cache, including other processes; "
                  "activations use the rest (default: 0.9)")
      ->type_name("SHARE")
      ->check(is_share);
  add_kv_cache_option(command, model.kv_type);
  add_non_finite_option(command, model.allow_non_finite);
  command.add_flag("--deterministic", model.deterministic,
                   "Bit-identical output, independent of other requests in the batch and of cached "
                   "prefixes; slower, CPU only");
}

void add_adapter_slot_options(CLI::App& command, AdapterSlots& adapter_slots) {
  adapter_slots = {.count = 0, .rank = 16};
  CLI::Option* const slots =
      command
          .add_option(
              "--max-loras", adapter_slots.count,
              "Slots for LoRA adapters loaded at run time via /v1/load_lora_adapter (default: 0)")
          ->type_name("N")
          ->check(CLI::Range(1, 256));
  command
      .add_option("--max-lora-rank", adapter_slots.rank,
                  "Maximum rank of adapters loaded at run time")
      ->needs(slots)
      ->capture_default_str()
      ->type_name("R")
      ->check(CLI::Range(1, 512));
}

void add_rank_options(CLI::App& command, ServedModelOptions& model) {
  add_layout_options(command, model.layout, LayoutUse::kModelOnly);
  add_ranks_option(
      command, model.ranks, kMaxRanks,
      "Ranks to start and supervise, over which the model is split; this process then handles only "
      "requests (default: those of the launcher, else as many as the parallel sizes need)");
  command
      .add_option("--data-parallel,--data-parallel-size", model.replicas,
                  "Replicas of the model, each on its own group of ranks; a lost replica is "
                  "restarted while the others continue (default: 1)")
      ->type_name("N")
      ->check(CLI::Range(1, static_cast<int>(kMaxServers)));
  command
      .add_option("--launcher", model.launcher,
                  "Launcher of the ranks that --ranks starts: local (on this machine), mpirun, "
                  "srun, or auto: srun within a Slurm allocation of several machines, else local")
      ->capture_default_str()
      ->check(CLI::IsMember({"auto", "local", "mpirun", "srun"}));
  command
      .add_option(
          "--rank-address", model.rank_address,
          "Address of this machine for ranks on other machines (default: that of its host name)")
      ->type_name("HOST");
}

}  // namespace

CLI::App* add_serve_command(CLI::App& app, const CommandLine& line) {
  auto args = std::make_shared<ServeArguments>();
  CLI::App* command = app.add_subcommand("serve", "Serve a saved model over HTTP (OpenAI's API)");
  add_config_file_option(*command);
  add_model_option(*command, args->model.model, kAnyModel, &args->model_as_named);
  add_server_options(*command, *args);
  add_size_options(*command, args->model);
  add_scheduling_option(*command, *args);
  add_speculation_option(*command, args->speculative);
  add_rank_options(*command, args->model);
  add_adapter_option(*command, args->model.adapter);
  command
      ->add_option("--lora-modules", args->modules,
                   "PEFT adapter served under its own model id, in addition to the base model "
                   "(repeatable)")
      ->take_all()
      ->type_name("NAME=DIR");
  add_adapter_slot_options(*command, args->model.adapter_slots);
  add_device_option(*command, args->model.device);
  add_dtype_option(*command, args->model.dtype);
  add_quantization_option(*command, args->model.quantization);
  command
      ->add_option("--chat-template", args->chat_template,
                   "Chat template: a file, a tokenizer directory that has one, or the name of one "
                   "of the model's templates (default: the model's)")
      ->type_name("PATH");
  command
      ->add_option("--tool-call-parser", args->tool_format,
                   "Format of tool calls: hermes, llama3_json or mistral (default: detected from "
                   "the chat template)")
      ->check(CLI::IsMember({"hermes", "llama3_json", "mistral"}));
  command->add_option("--tokenizer", args->model.tokenizer,
                      "Tokenizer: byte, a tokenizer.json, a .model, or a directory with one of "
                      "these (default: the model's)");
  command
      ->add_option("--threads", args->model.threads,
                   "Threads of each rank (default: its share of the cores)")
      ->check(whole_number(1));
  command->footer(
      "SIGTERM and SIGINT: running requests finish, new ones are refused.\nMore: "
      "docs/guide/serving.md");
  command->callback([args, command, line] { run(*args, *command, line); });
  return command;
}

}  // namespace trireme
