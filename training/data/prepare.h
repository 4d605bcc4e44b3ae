// Preparation of token files and tokenizers from text, for `trireme data`.
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
  std::string output;               // prefix of the .bin and .idx; its folder is created if missing
  std::string tokenizer = "byte";
  std::string json_key = "text";
  bool append_eod = false;    // append the tokenizer's eod to each document
  bool overwrite = false;     // replace an existing pair instead of refusing
  bool skip_invalid = false;  // skip documents that cannot be read instead of failing
  int threads = 1;
};

// Document skipped because it cannot be read.
struct SkippedDocument {
  int64_t number = 0;   // in the whole input, from 0
  std::string problem;  // "b.jsonl:3 is not valid JSON; ..."
};
inline constexpr size_t kMaxSkippedShown = 5;

struct PrepareStats {
  int64_t files = 0, documents = 0, tokens = 0;
  int64_t empty_documents = 0;  // not written
  int64_t skipped_documents = 0;
  std::vector<SkippedDocument> first_skipped;  // in input order, at most kMaxSkippedShown
  int64_t text_bytes = 0;                      // of the documents, uncompressed
  double seconds = 0;
};

// Called between batches of documents, on the calling thread.
struct PrepareProgress {
  int64_t bytes_done = 0, bytes_total = 0;  // of the files on disk
  int64_t documents = 0, tokens = 0;
};
using ProgressCallback = std::function<void(const PrepareProgress&)>;

// Writes the pair in one process.
PrepareStats prepare_data(const PrepareOptions& options, const ProgressCallback& progress = {});

// The same with the ranks of `world`, which share a file system. Collective; the stats cover all
// ranks, and an error of one is thrown on all, before anything is replaced.
PrepareStats prepare_data(const PrepareOptions& options, Communicator& world,
                          const ProgressCallback& progress = {});

// The two halves of it. Each rank tokenises every ranks-th document into a part file beside the
// output. Then one rank merges the parts in document order and removes them. The pair is the same
// for any number of ranks and threads.
PrepareStats prepare_part(const PrepareOptions& options, int rank, int ranks,
                          const ProgressCallback& progress = {});
void merge_parts(const PrepareOptions& options, int ranks);

struct TrainTokenizerOptions {
  std::vector<std::string> inputs;
  std::string output;  // X.model; its folder is created if missing
  std::string json_key = "text";
  int64_t vocab_size = 0;
  std::string model_type = "bpe";
  int64_t max_bytes = 256 << 20;  // of text to read, from the start of the input
  bool overwrite = false;
};
// Returns the size of the trained vocabulary.
int64_t train_tokenizer(const TrainTokenizerOptions& options);

// Human-readable description of a token file (without a final line end): sizes, element type,
// lengths, and with a tokenizer the start of the first documents. Reads and checks every token.
std::string inspect_token_file(const std::string& prefix, const Tokenizer* tokenizer,
                               int64_t show_documents);

}  // namespace trireme
