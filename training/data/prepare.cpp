#include "training/data/prepare.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <filesystem>
#include <sstream>

#include "engine/core/error.h"
#include "engine/core/parallel_for.h"
#include "engine/io/text_reader.h"
#include "engine/io/token_file.h"
#include "engine/text/sentencepiece.h"
#include "parallel/comm/communicator.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

// Bytes of text that are collected before several threads tokenize them.
constexpr size_t kTextBatchBytes = size_t{16} << 20;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void refuse_existing(const std::string& path, bool overwrite) {
  if (overwrite || !fs::exists(path)) return;
  fail_input(path, " exists already: choose another output or pass --overwrite");
}

// Folder of an output file, created if missing. The destructor removes the folders that were
// created, unless keep() was called, so that invalid input leaves no empty folders.
class OutputFolder {
 public:
  explicit OutputFolder(const std::string& file) {
    const fs::path folder = fs::path(file).parent_path();
    if (folder.empty()) return;
    for (fs::path p = folder; !p.empty() && !fs::exists(p); p = p.parent_path()) made_.push_back(p);
    make_directories(folder.string());
  }
  ~OutputFolder() {
    std::error_code not_empty;
    for (const fs::path& folder : made_) fs::remove(folder, not_empty);
  }
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;
  void keep() { made_.clear(); }

 private:
  std::vector<fs::path> made_;  // innermost first
};

std::string part_prefix(const PrepareOptions& options, int rank, int ranks) {
  return concat(token_file_prefix(options.output), ".part-", rank, "-of-", ranks);
}

void remove_part(const PrepareOptions& options, int rank, int ranks) {
  std::error_code ignored;
  for (const char* suffix : {".idx", ".bin"}) {
    fs::remove(part_prefix(options, rank, ranks) + suffix, ignored);
  }
}

// Tokenizes a batch of records on several threads; results keep the order of the records.
class BatchTokenizer {
 public:
  BatchTokenizer(const TextReader& reader, const Tokenizer& tokenizer,
                 const PrepareOptions& options)
      : reader_(reader), tokenizer_(tokenizer), options_(options) {}

  // number: of the record in the whole input.
  void add(TextRecord&& record, int64_t number) {
    bytes_ += record.bytes.size();
    records_.push_back(std::move(record));
    numbers_.push_back(number);
  }
  bool full() const { return bytes_ >= kTextBatchBytes; }

  // keep_empty: writes an empty document for each skipped one.
  void flush(TokenFileWriter& writer, PrepareStats& stats, bool keep_empty) {
    std::vector<Tokenized> documents(records_.size());
    parallel_for(options_.threads, static_cast<int64_t>(records_.size()), 1,
                 [&](int64_t begin, int64_t end) {
                   for (int64_t i = begin; i < end; ++i) {
                     const auto at = static_cast<size_t>(i);
                     documents[at] = tokenize(std::move(records_[at]));
                   }
                 });
    for (size_t i = 0; i < documents.size(); ++i) {
      // The first failure in input order, so that the error is always the same.
      if (documents[i].failure) std::rethrow_exception(documents[i].failure);
      write(writer, documents[i], numbers_[i], stats, keep_empty);
    }
    records_.clear();
    numbers_.clear();
    bytes_ = 0;
  }

 private:
  struct Tokenized {
    std::vector<int32_t> ids;
    int64_t bytes = 0;
    std::string problem;  // of a document that is skipped
    std::exception_ptr failure;
  };

  Tokenized tokenize(TextRecord&& record) const {
    Tokenized out;
    std::string text;
    try {
      text = reader_.document(std::move(record));
    } catch (const InputError& error) {
      out.problem = error.what();
      if (!options_.skip_invalid) out.failure = std::current_exception();
      return out;
    } catch (...) {
      out.failure = std::current_exception();
      return out;
    }
    try {
      out.bytes = static_cast<int64_t>(text.size());
      out.ids = tokenizer_.encode(text);
    } catch (...) {
      out.failure = std::current_exception();
    }
    return out;
  }

  void write(TokenFileWriter& writer, Tokenized& document, int64_t number, PrepareStats& stats,
             bool keep_empty) const {
    std::vector<int32_t>& ids = document.ids;
    stats.text_bytes += document.bytes;
    if (!document.problem.empty()) {
      ++stats.skipped_documents;
      if (stats.first_skipped.size() < kMaxSkippedShown)
        stats.first_skipped.push_back({number, std::move(document.problem)});
    } else if (ids.empty()) {
      ++stats.empty_documents;
    }
    if (ids.empty()) {
      if (keep_empty) writer.add_document({}, {});
      return;
    }
    if (options_.append_eod) ids.push_back(tokenizer_.eod_id());
    writer.add_document(ids);
    ++stats.documents;
    stats.tokens += static_cast<int64_t>(ids.size());
  }

  const TextReader& reader_;
  const Tokenizer& tokenizer_;
  const PrepareOptions& options_;
  std::vector<TextRecord> records_;
  std::vector<int64_t> numbers_;  // of the records
  size_t bytes_ = 0;
};

std::unique_ptr<Tokenizer> checked_tokenizer(const PrepareOptions& options) {
  auto tokenizer = load_tokenizer(options.tokenizer);
  if (options.append_eod && tokenizer->eod_id() < 0) {
    fail_input("tokenizer ", tokenizer->name(),
               " has no end-of-document id: leave out --append-eod");
  }
  return tokenizer;
}

// Tokenizes records rank, rank + ranks, ... of the input to a pair at `prefix`.
PrepareStats tokenize_share(const PrepareOptions& options, const std::string& prefix, int rank,
                            int ranks, bool keep_empty, const ProgressCallback& progress) {
  const auto start = std::chrono::steady_clock::now();
  const auto tokenizer = checked_tokenizer(options);
  TextReader reader(list_text_files(options.inputs), options.json_key);
  TokenFileWriter writer(prefix, token_type_for_vocabulary(tokenizer->vocab_size()));
  BatchTokenizer batch(reader, *tokenizer, options);
  PrepareStats stats;
  stats.files = static_cast<int64_t>(reader.files().size());
  const auto flush = [&] {
    batch.flush(writer, stats, keep_empty);
    if (progress)
      progress({reader.bytes_read(), reader.bytes_total(), stats.documents, stats.tokens});
  };
  for (int64_t number = 0;; ++number) {
    TextRecord record;
    const bool mine = number % ranks == rank;
    if (!reader.next(mine ? &record : nullptr)) break;
    if (mine) batch.add(std::move(record), number);
    if (batch.full()) flush();
  }
  flush();
  if (stats.documents == 0 && ranks == 1) {
    fail_input("the input has no text: all documents are empty or skipped");
  }
  writer.commit();
  stats.seconds = seconds_since(start);
  return stats;
}

}  // namespace

PrepareStats prepare_data(const PrepareOptions& options, const ProgressCallback& progress) {
  const std::string prefix = token_file_prefix(options.output);
  refuse_existing(prefix + ".idx", options.overwrite);
  refuse_existing(prefix + ".bin", options.overwrite);
  OutputFolder folder(prefix);
  PrepareStats stats = tokenize_share(options, prefix, 0, 1, /*keep_empty=*/false, progress);
  folder.keep();
  return stats;
}

PrepareStats prepare_part(const PrepareOptions& options, int rank, int ranks,
                          const ProgressCallback& progress) {
  TRIREME_CHECK(rank >= 0 && rank < ranks, "rank ", rank, " of ", ranks);
  const std::string prefix = token_file_prefix(options.output);
  refuse_existing(prefix + ".idx", options.overwrite);
  refuse_existing(prefix + ".bin", options.overwrite);
  // The parts keep empty documents, because the merge finds document d as document d / ranks of its
  // rank.
  return tokenize_share(options, part_prefix(options, rank, ranks), rank, ranks,
                        /*keep_empty=*/true, progress);
}

void merge_parts(const PrepareOptions& options, int ranks) {
  std::vector<TokenFile> parts;
  parts.reserve(static_cast<size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) parts.emplace_back(part_prefix(options, rank, ranks));
  TokenFileWriter writer(options.output, parts[0].type());
  int64_t documents = 0;
  for (const TokenFile& part : parts) documents += part.num_documents();
  for (int64_t d = 0; d < documents; ++d) {
    const TokenFile& part = parts[static_cast<size_t>(d % ranks)];
    const int64_t document = d / ranks;
    if (part.document_begin(document) == part.document_begin(document + 1)) continue;  // empty
    writer.add_document_of(part, document);
  }
  if (writer.num_documents() == 0) {
    fail_input("the input has no text: all documents are empty or skipped");
  }
  writer.commit();
  for (int rank = 0; rank < ranks; ++rank) remove_part(options, rank, ranks);
}

namespace {

// Runs `work` on the participating ranks; an error of any rank is thrown on all. Collective.
template <class Work>
void together(Communicator& world, bool takes_part, const Work& work) {
  std::string problem;
  try {
    if (takes_part) work();
  } catch (const InputError& error) {
    problem = error.what();
  }
  for (const std::string& other : world.all_gather_strings(problem)) {
    if (!other.empty()) throw InputError(other);
  }
}

}  // namespace

namespace {

// First skipped documents of all ranks, in input order.
std::vector<SkippedDocument> gather_skipped(const std::vector<SkippedDocument>& own,
                                            Communicator& world) {
  std::string lines;
  for (const SkippedDocument& document : own) {
    std::string problem = document.problem;
    std::ranges::replace(problem, '\n', ' ');  // of a hostile file name
    lines += concat(document.number, ' ', problem, '\n');
  }
  std::vector<SkippedDocument> all;
  for (const std::string& others : world.all_gather_strings(lines)) {
    std::istringstream stream(others);
    for (SkippedDocument document;
         stream >> document.number && stream.ignore(1) && std::getline(stream, document.problem);)
      all.push_back(document);
  }
  std::ranges::sort(all, {}, &SkippedDocument::number);
  if (all.size() > kMaxSkippedShown) all.resize(kMaxSkippedShown);
  return all;
}

}  // namespace

PrepareStats prepare_data(const PrepareOptions& options, Communicator& world,
                          const ProgressCallback& progress) {
  if (world.size() == 1) return prepare_data(options, progress);
  PrepareStats stats;
  const auto start = std::chrono::steady_clock::now();
  OutputFolder folder(token_file_prefix(options.output));
  try {
    together(world, true,
             [&] { stats = prepare_part(options, world.rank(), world.size(), progress); });
    together(world, world.rank() == 0, [&] { merge_parts(options, world.size()); });
  } catch (const InputError&) {
    remove_part(options, world.rank(), world.size());
    throw;
  }
  folder.keep();
  for (int64_t* count : {&stats.documents, &stats.tokens, &stats.empty_documents,
                         &stats.skipped_documents, &stats.text_bytes}) {
    *count = world.all_reduce_scalar(*count, ReduceOp::kSum);
  }
  stats.first_skipped = gather_skipped(stats.first_skipped, world);
  stats.seconds = seconds_since(start);
  return stats;
}

int64_t train_tokenizer(const TrainTokenizerOptions& options) {
  if (!options.output.ends_with(".model")) {
    fail_input("output ", options.output, ": expected a path that ends in .model");
  }
  refuse_existing(options.output, options.overwrite);
  OutputFolder folder(options.output);
  TextReader reader(list_text_files(options.inputs), options.json_key);
  // The trainer reads lines as sentences; white space inside a line is kept.
  std::string text;
  size_t at = 0;
  int64_t used = 0;
  TextRecord record;
  const auto next = [&](std::string& sentence) {
    while (used < options.max_bytes) {
      while (at >= text.size()) {
        if (!reader.next(&record)) return false;
        text = reader.document(std::move(record));
        at = 0;
      }
      const size_t end = std::min(text.find('\n', at), text.size());
      sentence = text.substr(at, end - at);
      at = end + 1;
      used += static_cast<int64_t>(sentence.size()) + 1;
      if (!sentence.empty()) return true;
    }
    return false;
  };
  const std::string model = train_sentencepiece(
      {.vocab_size = options.vocab_size, .model_type = options.model_type}, next);
  const int64_t vocab_size = parse_sentencepiece(model, options.output)->vocab_size();
  write_file_atomically(options.output, model);
  folder.keep();
  return vocab_size;
}

}  // namespace trireme
