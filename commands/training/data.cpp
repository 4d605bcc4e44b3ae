// Preparation of training data: `data prepare`, `data train-tokenizer`, `data inspect`.
#include "commands/training/data.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>

#include "commands/connect.h"
#include "commands/rank_options.h"
#include "commands/whole_number.h"
#include "engine/core/cpu.h"
#include "engine/core/error.h"
#include "engine/core/utf8.h"
#include "engine/io/token_file.h"
#include "engine/observe/console.h"
#include "engine/observe/progress.h"
#include "parallel/launch.h"
#include "training/data/prepare.h"

namespace trireme {
namespace {

// Status line of `data prepare`, on a terminal only.
class PrepareStatus {
 public:
  PrepareStatus() : start_(std::chrono::steady_clock::now()) {}
  ~PrepareStatus() { console_set_status(""); }
  PrepareStatus(const PrepareStatus&) = delete;
  PrepareStatus& operator=(const PrepareStatus&) = delete;

  void update(const PrepareProgress& progress) const {
    if (!console_is_terminal() || progress.bytes_done == 0) return;
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    const double done = static_cast<double>(progress.bytes_done);
    const double share = done / static_cast<double>(std::max<int64_t>(1, progress.bytes_total));
    std::string line =
        concat("prepare ", static_cast<int>(100 * share), "%  ", format_bytes(progress.bytes_done),
               " of ", format_bytes(progress.bytes_total), "  ",
               format_count(static_cast<double>(progress.documents)), " documents  ",
               format_count(static_cast<double>(progress.tokens)), " tokens  ETA ",
               format_duration(seconds * (1 / share - 1)));
    line.resize(std::min(line.size(), static_cast<size_t>(console_width())));
    console_set_status(line);
  }

 private:
  std::chrono::steady_clock::time_point start_;
};

void print_stats(const PrepareOptions& options, const PrepareStats& stats) {
  const double seconds = std::max(stats.seconds, 1e-3);
  console_print(
      Stream::kOut,
      concat(token_file_prefix(options.output), ".bin and .idx: ", stats.documents, " documents, ",
             stats.tokens, " tokens (", format_count(static_cast<double>(stats.tokens)), ") from ",
             stats.files, " files, ", format_bytes(stats.text_bytes), " of text"));
  if (stats.empty_documents > 0) {
    console_print(Stream::kOut, concat(stats.empty_documents, " empty documents skipped"));
  }
  if (stats.skipped_documents > 0) {
    std::string lines = concat(stats.skipped_documents, " documents skipped that cannot be read");
    for (const SkippedDocument& document : stats.first_skipped)
      lines += concat("\n  ", printable(document.problem));
    if (stats.skipped_documents > static_cast<int64_t>(stats.first_skipped.size()))
      lines += "\n  ...";
    console_print(Stream::kOut, lines);
  }
  const double bytes_per_second = static_cast<double>(stats.text_bytes) / seconds;
  console_print(
      Stream::kOut,
      concat(seconds < 60 ? concat(std::round(seconds * 10) / 10, " s") : format_duration(seconds),
             ", ", format_bytes(static_cast<int64_t>(bytes_per_second)), "/s of text, ",
             format_count(static_cast<double>(stats.tokens) / seconds), " tokens/s"));
}

// Runs `data prepare`. Under mpirun or srun the ranks share the work; only rank 0 prints.
void run_prepare(PrepareOptions options, const CLI::App& command) {
  join_console();
  std::unique_ptr<World> world =
      connect_ranks(world_options(CommConfig{}), facts_of_command(command));
  const bool speaks = world->rank() == 0;
  if (options.threads == 0) options.threads = std::max(1, available_cores() / world->local_size());
  try {
    PrepareStats stats;
    {
      const PrepareStatus status;
      stats = prepare_data(options, world->world(), [&](const PrepareProgress& p) {
        if (speaks) status.update(p);
      });
    }
    if (speaks) print_stats(options, stats);
  } catch (const InputError& error) {
    // All ranks have the same error: disconnect normally, then let one report it.
    world.reset();
    if (!speaks) throw CLI::RuntimeError(static_cast<int>(error.code()));
    throw;
  }
}

void add_prepare(CLI::App& parent) {
  auto options = std::make_shared<PrepareOptions>();
  options->threads = 0;
  CLI::App* app = parent.add_subcommand(
      "prepare",
      "Tokenize text into a token file, PREFIX.bin and PREFIX.idx, in Megatron-LM's format.\nEach "
      "text file is one document. A .jsonl or .json file has one JSON object per line, which is "
      "one document; a .json file may be one array of objects instead. Files may be compressed "
      "(.gz, .zst). Folders are read recursively, in sorted order. Under mpirun or srun the ranks "
      "share the work. The result does not depend on the number of threads and ranks.");
  app->add_option("--input,-i", options->inputs, "Input text files and folders, read in this order")
      ->required()
      ->type_name("PATH");
  app->add_option("--output,-o", options->output, "Output token file, without .bin or .idx")
      ->required()
      ->type_name("PREFIX");
  app->add_option(
         "--tokenizer", options->tokenizer,
         "\"byte\" (257 ids: the bytes and <|endoftext|>), a tokenizer.json, a SentencePiece "
         ".model, a .gguf, or a directory with one of them")
      ->capture_default_str();
  app->add_option("--json-key", options->json_key, "Key of the text in JSON lines")
      ->capture_default_str();
  app->add_flag("--append-eod", options->append_eod,
                "End each document with the tokenizer's end-of-document token");
  app->add_flag(
      "--skip-invalid", options->skip_invalid,
      "Skip documents that cannot be read (a line that is not a JSON object, lacks the key, or is "
      "not UTF-8), count them and print the first ones (default: fail)");
  app->add_option("--threads", options->threads,
                  "Threads of each rank (default: the host's cores divided by its ranks)")
      ->check(CLI::Range(1, 1024));
  app->add_flag("--overwrite", options->overwrite, "Replace the token file if it exists");
  app->footer("Example: trireme data prepare -i corpus/ -o data/corpus --append-eod");
  app->callback([options, app] { run_prepare(*options, *app); });
}

void add_train_tokenizer(CLI::App& parent) {
  auto options = std::make_shared<TrainTokenizerOptions>();
  auto max_megabytes = std::make_shared<int64_t>(options->max_bytes >> 20);
  CLI::App* app = parent.add_subcommand(
      "train-tokenizer",
      "Train a SentencePiece model on text. Text is not normalized, and unknown characters are "
      "encoded as bytes, so that decoding gives exactly the encoded text. The same text gives the "
      "same model on every machine.");
  app->add_option("--input,-i", options->inputs, "Text files and folders, as for `data prepare`")
      ->required()
      ->type_name("PATH");
  app->add_option("--output,-o", options->output, "Output file, ending in .model")
      ->required()
      ->type_name("X.model");
  app->add_option("--vocab-size", options->vocab_size,
                  "Vocabulary size; 259 ids are reserved (control tokens and bytes)")
      ->required()
      ->type_name("N");
  app->add_option("--model-type", options->model_type, "Tokenizer algorithm")
      ->check(CLI::IsMember({"bpe", "unigram"}))
      ->capture_default_str();
  app->add_option("--json-key", options->json_key, "Key of the text in JSON lines")
      ->capture_default_str();
  app->add_option(
         "--max-megabytes", *max_megabytes,
         "Maximum MiB of text, from the start of the input; training needs many times as much "
         "memory")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app->add_flag("--overwrite", options->overwrite, "Replace the model if it exists");
  app->footer("Example: trireme data train-tokenizer -i corpus/ -o bpe.model --vocab-size 8192");
  app->callback([options, max_megabytes] {
    options->max_bytes = *max_megabytes << 20;
    const int64_t vocab_size = train_tokenizer(*options);
    console_print(Stream::kOut,
                  concat(options->output, ": ", options->model_type, " with ", vocab_size, " ids"));
  });
}

void add_inspect(CLI::App& parent) {
  struct Options {
    std::string prefix, tokenizer;
    int64_t documents = 3;
  };
  auto options = std::make_shared<Options>();
  CLI::App* app =
      parent.add_subcommand("inspect",
                            "Check every token of a token file and show sizes, element type, "
                            "documents, and the first tokens of the first documents");
  app->add_option("prefix", options->prefix, "Token file, with or without .bin or .idx")
      ->required()
      ->type_name("PREFIX");
  app->add_option("--tokenizer", options->tokenizer,
                  "Tokenizer, as for `data prepare`, to show text instead of ids");
  app->add_option("--documents", options->documents, "Documents to show")
      ->check(whole_number(0))
      ->capture_default_str();
  app->callback([options] {
    const auto tokenizer =
        options->tokenizer.empty() ? nullptr : load_tokenizer(options->tokenizer);
    const std::string shown =
        inspect_token_file(options->prefix, tokenizer.get(), options->documents);
    console_print(Stream::kOut, shown);
  });
}

}  // namespace

CLI::App* add_data_command(CLI::App& parent) {
  CLI::App* app =
      parent.add_subcommand("data", "Prepare and inspect token files, train tokenizers");
  app->require_subcommand(1);
  add_prepare(*app);
  add_train_tokenizer(*app);
  add_inspect(*app);
  return app;
}

}  // namespace trireme
