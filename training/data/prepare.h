// Preparation of training data for `trireme data`: token files and tokenizers from text.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/text/tokenizer.h"

namespace trireme {

class Communicator;

struct PrepareOptions {
  std::vector<std::string> inputs;  // files and folders (engine/io/text_reader.h)
  std::string output;               // prefix of the .bin and .idx; creates its folder if missing
  std::string tokenizer = "byte";
  std::string json_key = "text";  // key of the text in JSON lines
  bool append_eod = false;        // end each document with the tokenizer's end-of-document token
  bool overwrite = false;         // replace an existing pair; false: an error
  bool skip_invalid = false;      // skip documents that cannot be read; false: an error
  int threads = 1;
};

// Document skipped because it cannot be read.
struct SkippedDocument {
  int64_t number = 0;   // position in the whole input, from 0
  std::string problem;  // "b.jsonl:3 is not valid JSON; ..."
};
inline constexpr size_t kMaxSkippedShown = 5;

struct PrepareStats {
  int64_t files = 0, documents = 0, tokens = 0;
  int64_t empty_documents = 0;  // not written
  int64_t skipped_documents = 0;
  std::vector<SkippedDocument> first_skipped;  // in input order, at most kMaxSkippedShown
  int64_t text_bytes = 0;                      // bytes of all documents, uncompressed
  double seconds = 0;
};

struct PrepareProgress {
  int64_t bytes_done = 0, bytes_total = 0;  // of the files on disk
  int64_t documents = 0, tokens = 0;
};
// Called between batches of documents, on the calling thread.
using ProgressCallback = std::function<void(const PrepareProgress&)>;

// Writes a token file (.bin and .idx) in one process.
PrepareStats prepare_data(const PrepareOptions& options, const ProgressCallback& progress = {});

// The same with the ranks of `world`, which share a file system. Collective. The stats cover all
// ranks. An InputError of one rank is thrown on all of them, before any file is replaced.
PrepareStats prepare_data(const PrepareOptions& options, Communicator& world,
                          const ProgressCallback& progress = {});

// The two phases of prepare_data() on several ranks. First each rank tokenizes every ranks-th
// document into a part file next to the output. Then one rank merges the parts in document order
// and removes them. The result is the same for any number of ranks and threads.
PrepareStats prepare_part(const PrepareOptions& options, int rank, int ranks,
                          const ProgressCallback& progress = {});
void merge_parts(const PrepareOptions& options, int ranks);

struct TrainTokenizerOptions {
  std::vector<std::string> inputs;
  std::string output;  // path ending in .model; creates its folder if missing
  std::string json_key = "text";
  int64_t vocab_size = 0;
  std::string model_type = "bpe";  // "bpe" or "unigram"
  int64_t max_bytes = 256 << 20;   // bytes of text to read, from the start of the input
  bool overwrite = false;
};
// Returns the size of the trained vocabulary.
int64_t train_tokenizer(const TrainTokenizerOptions& options);

// Human-readable description of a token file, without a final line break: sizes, element type,
// document lengths, and the start of the first show_documents documents, as text if there is a
// tokenizer. Reads and checks every token.
std::string inspect_token_file(const std::string& prefix, const Tokenizer* tokenizer,
                               int64_t show_documents);

}  // namespace trireme
