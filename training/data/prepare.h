// From text to token files and tokenizers: what `trireme data` does.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/text/tokenizer.h"

namespace trireme {

class Communicator;

struct PrepareOptions {
  std::vector<std::string> inputs;  // files and folders, engine/io/text_reader.h
  std::string output;               // prefix of the .bin and .idx; its folder is made if missing
  std::string tokenizer = "byte";
  std::string json_key = "text";
  bool append_eod = false;    // the tokenizer's eod after each document
  bool overwrite = false;     // replace an existing pair instead of refusing
  bool skip_invalid = false;  // leave out documents that cannot be read instead of failing
  int threads = 1;
};

// A document left out because it cannot be read.
struct SkippedDocument {
  int64_t number = 0;   // among all of the input, from 0
  std::string problem;  // "b.jsonl:3 is not valid JSON; ..."
};
inline constexpr size_t kMaxSkippedShown = 5;

struct PrepareStats {
  int64_t files = 0, documents = 0, tokens = 0;
  int64_t empty_documents = 0;  // left out
  int64_t skipped_documents = 0;
  std::vector<SkippedDocument> first_skipped;  // in the input's order, at most kMaxSkippedShown
  int64_t text_bytes = 0;                      // of the documents, uncompressed
  double seconds = 0;
};

// Called between blocks of documents, on the calling thread.
struct PrepareProgress {
  int64_t bytes_done = 0, bytes_total = 0;  // of the files on disk
  int64_t documents = 0, tokens = 0;
};
using ProgressCallback = std::function<void(const PrepareProgress&)>;

// Writes the pair in one process.
PrepareStats prepare_data(const PrepareOptions& options, const ProgressCallback& progress = {});

// The same with the ranks of `world`, which see one file system. Collective; stats are those of all
// ranks, and an error of one is thrown on all of them, before anything is replaced.
PrepareStats prepare_data(const PrepareOptions& options, Communicator& world,
                          const ProgressCallback& progress = {});

// Its two halves: each rank tokenises every ranks-th document into a part file beside the output;
// when all have done so, one merges the parts in the order of the documents and removes them. The
// pair is the same for any number of ranks and threads.
PrepareStats prepare_part(const PrepareOptions& options, int rank, int ranks,
                          const ProgressCallback& progress = {});
void merge_parts(const PrepareOptions& options, int ranks);

struct TrainTokenizerOptions {
  std::vector<std::string> inputs;
  std::string output;  // X.model; its folder is made if missing
  std::string json_key = "text";
  int64_t vocab_size = 0;
  std::string model_type = "bpe";
  int64_t max_bytes = 256 << 20;  // of text read, from the beginning
  bool overwrite = false;
};
// Returns the vocabulary size of what was trained.
int64_t train_tokenizer(const TrainTokenizerOptions& options);

// What a token file holds, as lines for people (no line end behind the last): sizes, element type,
// lengths, and with a tokenizer the beginning of the first documents. Every token is read and
// checked.
std::string inspect_token_file(const std::string& prefix, const Tokenizer* tokenizer,
                               int64_t show_documents);

}  // namespace trireme
