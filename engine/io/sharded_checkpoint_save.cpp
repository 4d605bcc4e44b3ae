// Writer of sharded_checkpoint.h.
#include <fcntl.h>
#include <stdio.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <tuple>

#include "engine/io/atomic_file.h"
#include "engine/io/rank_agreement.h"
#include "engine/io/safetensors.h"
#include "engine/io/sharded_checkpoint.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

TensorBox box_of(const CheckpointPart& part) {
  return part.box.extent.empty() ? whole_box(part.shape) : part.box;
}

void check_part(const CheckpointPart& part) {
  check_contiguous("save_checkpoint", part.name.c_str(), part.data);
  const TensorBox box = box_of(part);
  const std::string problem = check_box(box, part.shape);
  TRIREME_CHECK(problem.empty(), part.kind, " ", part.name, ": ", problem);
  TRIREME_CHECK(part.begin >= 0 && part.data.numel() <= box.numel() - part.begin, part.kind, " ",
                part.name, ": ", part.data.numel(), " elements from ", part.begin,
                " on are outside a box of ", box.numel());
}

// Name of a part inside its shard. A part that is a whole tensor keeps the plain name.
std::string part_name(const CheckpointPart& part) {
  const TensorBox box = box_of(part);
  std::string name = part.kind + ":" + part.name;
  if (box != whole_box(part.shape)) name += box.str();
  if (part.data.numel() != box.numel()) {
    name += concat("#", part.begin, ":", part.begin + part.data.numel());
  }
  return name;
}

// Wide elements first: keeps every tensor of the shard aligned to its element.
std::vector<const CheckpointPart*> in_file_order(const std::vector<CheckpointPart>& parts) {
  std::vector<const CheckpointPart*> order;
  for (const CheckpointPart& part : parts) {
    if (part.data.numel() > 0) order.push_back(&part);
  }
  std::stable_sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return dtype_size(a->data.dtype()) > dtype_size(b->data.dtype());
  });
  return order;
}

SafetensorsSpec spec_of(const CheckpointPart& part) {
  const TensorBox box = box_of(part);
  const bool whole = part.data.numel() == box.numel();
  return {part_name(part), part.data.dtype(), whole ? box.extent : std::vector{part.data.numel()}};
}

// Adds the kept bytes of a part, which starts at `offset` of the file, to its checksum.
void add_kept(const AtomicFile& file, int64_t offset, int64_t bytes, ChecksumStream& sum) {
  std::vector<std::byte> block(static_cast<size_t>(std::min(bytes, kJournalStep)));
  for (int64_t done = 0; done < bytes; done += std::ssize(block)) {
    const auto piece =
        std::span(block).first(static_cast<size_t>(std::min(bytes - done, std::ssize(block))));
    file.read_kept(offset + done, piece);
    sum.update(piece);
  }
}

// Passes the data of all parts to the writer; sums: checksum of each part.
void write_parts(const SaveOptions& options, const std::vector<const CheckpointPart*>& order,
                 SafetensorsWriter& writer, std::vector<ChecksumStream>& sums) {
  bool kept = true;  // up to the current part
  for (size_t i = 0; i < order.size(); ++i) {
    const ConstTensor& data = order[i]->data;
    const int64_t offset = kept ? writer.file().size() : 0;
    const int64_t first = kept ? writer.skip_kept(data.numel(), data.dtype()) : 0;
    const int64_t skipped = first * dtype_size(data.dtype());
    add_kept(writer.file(), offset, skipped, sums[i]);
    if (skipped > 0 && options.progress) options.progress(writer.file().size());
    if (first == data.numel()) continue;
    kept = false;
    const auto take = [&options, &writer, &sum = sums[i]](SaveOptions::Bytes bytes) {
      sum.update(bytes);
      writer.write(bytes);
      if (options.progress) options.progress(writer.file().size());
    };
    if (options.read)
      options.read(data, first, take);
    else
      take({static_cast<const std::byte*>(data.raw()) + skipped,
            static_cast<size_t>(data.bytes() - skipped)});
  }
  if (options.finish_reading) options.finish_reading();
}

// Writes this rank's shard and returns its description for rank 0's manifest.
Json write_shard(const SaveOptions& options, const std::string& directory, const std::string& file,
                 const std::vector<CheckpointPart>& parts) {
  const auto order = in_file_order(parts);
  std::vector<SafetensorsSpec> specs;
  specs.reserve(order.size());
  for (const CheckpointPart* part : order) specs.push_back(spec_of(*part));
  // A shard may be complete here, if the save was interrupted later, at the manifest. Its disk
  // space is needed to write it again.
  if (!options.resume_as.empty()) remove_tree(directory + "/" + file);
  SafetensorsWriter writer(directory + "/" + file, specs, {{"format", kCheckpointFormat}},
                           options.resume_as);
  const int64_t kept = writer.file().kept();
  std::vector<ChecksumStream> sums(order.size());
  write_parts(options, order, writer, sums);
  Json entries = Json::array();
  int64_t offset = writer.data_start();
  for (size_t i = 0; i < order.size(); ++i) {
    const CheckpointPart* part = order[i];
    const TensorBox box = box_of(*part);
    entries.push_back({part->kind, part->name, static_cast<int>(part->data.dtype()), part->shape,
                       box.start, box.extent, part->begin, part->data.numel(), offset,
                       sums[i].value()});
    offset += part->data.bytes();
  }
  const int64_t bytes = writer.file().size();
  const uint64_t sum = writer.file().checksum();
  writer.commit();
  return {{"file", file},
          {"bytes", bytes},
          {"checksum", sum},
          {"kept", kept},
          {"entries", std::move(entries)}};
}

CheckpointSlice& add_slice(std::map<std::pair<std::string, std::string>, CheckpointTensor>& tensors,
                           const Json& entry) {
  const std::string kind = entry[0], name = entry[1];
  const auto dtype = static_cast<DType>(entry[2].get<int>());
  const auto shape = entry[3].get<std::vector<int64_t>>();
  CheckpointTensor& tensor = tensors[{kind, name}];
  if (tensor.slices.empty()) {
    tensor = {kind, name, dtype, shape, {}};
  }
  TRIREME_CHECK(tensor.dtype == dtype && tensor.shape == shape, kind, " ", name,
                ": two ranks save it with different shapes or dtypes");
  CheckpointSlice slice;
  slice.part.box = {entry[4].get<std::vector<int64_t>>(), entry[5].get<std::vector<int64_t>>()};
  slice.part.begin = entry[6];
  slice.part.end = slice.part.begin + entry[7].get<int64_t>();
  slice.offset = entry[8];
  slice.bytes = entry[7].get<int64_t>() * dtype_size(dtype);
  slice.checksum = entry[9];
  tensor.slices.push_back(std::move(slice));
  return tensor.slices.back();
}

CheckpointManifest merge(const std::vector<Json>& reports, int64_t step, const std::string& state) {
  CheckpointManifest manifest;
  manifest.engine_version = TRIREME_VERSION;
  manifest.step = step;
  manifest.state = state;
  std::map<std::pair<std::string, std::string>, CheckpointTensor> tensors;
  for (const Json& report : reports) {
    if (!report.contains("file")) continue;  // a rank with nothing to write
    const auto shard = static_cast<int64_t>(manifest.shards.size());
    manifest.shards.push_back({report["file"], report["bytes"], report["checksum"]});
    for (const Json& entry : report["entries"]) add_slice(tensors, entry).shard = shard;
  }
  for (auto& [key, tensor] : tensors) manifest.tensors.push_back(std::move(tensor));
  return manifest;
}

// Renamed before removal, so that a kill halfway leaves no partial checkpoint.
void remove_checkpoint(const std::string& directory) {
  const std::string doomed = directory + ".deleting";
  remove_tree(doomed);
  std::error_code error;
  fs::rename(directory, doomed, error);
  if (error) fail_file("rename", directory, error.value());
  remove_tree(doomed);
}

enum class Keeping { kDamaged, kCounted, kNotCounted };

Keeping keeping_of(const std::string& directory, const SaveOptions& options) {
  try {
    const CheckpointReader reader(directory);
    return !options.counts || options.counts(reader) ? Keeping::kCounted : Keeping::kNotCounted;
  } catch (const Error&) {
    return Keeping::kDamaged;
  }
}

// Keeps keep_last complete checkpoints up to `saved`, which `latest` names and which is one of them
// if it counts, and all of higher steps: a run that went back to an earlier step must not lose
// later checkpoints.
std::vector<std::string> prune(const SaveOptions& options, const std::string& saved) {
  const std::string& root = options.root;
  std::vector<std::string> names, removed;
  for (const auto& entry : fs::directory_iterator(root)) {
    const std::string name = entry.path().filename().string();
    int64_t step = 0;
    if (parse_step_directory_name(name, step) && name < saved) names.push_back(name);
  }
  std::sort(names.begin(), names.end(), std::greater<>());
  const bool counts = keeping_of(concat(root, "/", saved), options) == Keeping::kCounted;
  int64_t kept = counts ? 1 : 0;
  for (const std::string& name : names) {
    const std::string directory = concat(root, "/", name);
    const Keeping keeping = keeping_of(directory, options);
    if (keeping == Keeping::kDamaged) continue;  // kept for its owner to inspect
    if (kept < options.keep_last) {
      kept += keeping == Keeping::kCounted ? 1 : 0;
      continue;
    }
    remove_checkpoint(directory);
    removed.push_back(directory);
  }
  return removed;
}

void move_into_place(const std::string& temporary, const std::string& directory) {
  if (::rename(temporary.c_str(), directory.c_str()) == 0) return;
  if (errno != ENOTEMPTY && errno != EEXIST) fail_file("rename", temporary, errno);
  // The same step was saved before: exchange the two atomically, so that one of them always has the
  // name; on file systems that cannot exchange, the old one is removed a moment earlier.
  if (::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, directory.c_str(), RENAME_EXCHANGE) == 0) {
    remove_tree(temporary);
    return;
  }
  remove_checkpoint(directory);
  if (::rename(temporary.c_str(), directory.c_str()) != 0) fail_file("rename", temporary, errno);
}

// Rank 0, after all shards are durable: from here the checkpoint becomes visible.
Json publish(const SaveOptions& options, const std::string& temporary,
             const CheckpointManifest& manifest) {
  const std::string name = step_directory_name(options.step);
  const std::string directory = options.root + "/" + name;
  const std::string manifest_path = temporary + "/" + kManifestName;
  const std::string manifest_text = manifest_to_text(manifest);
  manifest_from_text(manifest_text, manifest_path);  // throws if it could not be loaded
  write_file_atomically(manifest_path, manifest_text);
  sync_directory(temporary);
  move_into_place(temporary, directory);
  sync_directory(options.root);
  write_file_atomically(options.root + "/latest", name + "\n");
  if (options.keep_last <= 0) return Json::object();
  try {
    return {{"removed", prune(options, name)}};
  } catch (const InputError& error) {  // the new checkpoint is complete: no reason to stop
    return {{"warning", concat("cannot delete old checkpoints: ", error.what())}};
  }
}

// Rank 0, before anything is written: assigns shards to ranks; a full disk is detected here.
Json prepare(const SaveOptions& options, const std::string& temporary,
             const std::vector<Json>& reports) {
  make_directories(options.root);
  if (options.resume_as.empty()) sweep_leftovers(options.root);
  int64_t total = 0;
  size_t writers = 0;
  for (const Json& report : reports) {
    const int64_t bytes = report["bytes"];
    total = checked_add(total, bytes);
    writers += bytes > 0 ? 1 : 0;
  }
  TRIREME_CHECK(writers > 0, "a checkpoint without tensors");
  if (options.resume_as.empty() && total > free_bytes_at(options.root).value_or(total))
    fail_file("save a checkpoint in", options.root, ENOSPC, total);
  make_directories(temporary);
  Json files = Json::array();
  size_t next = 0;
  for (const Json& report : reports) {
    const bool writes = report["bytes"].get<int64_t>() > 0;
    files.push_back(writes ? shard_file_name(next++, writers) : "");
  }
  return {{"files", files}, {"bytes", total}};
}

}  // namespace

void sweep_leftovers(const std::string& root) {
  std::error_code absent;
  for (const auto& entry : fs::directory_iterator(root, absent)) {
    const std::string name = entry.path().filename().string();
    const bool step = name.starts_with("step-");
    if ((step && (name.ends_with(".tmp") || name.ends_with(".deleting"))) || name == "latest.tmp")
      remove_tree(entry.path().string());
  }
}

std::vector<std::string> set_aside_later(const std::string& root, int64_t step) {
  std::vector<std::string> names;
  std::error_code absent;
  for (const auto& entry : fs::directory_iterator(root, absent)) {
    const std::string name = entry.path().filename().string();
    int64_t its = 0;
    if (parse_step_directory_name(name, its) && its > step) names.push_back(name);
  }
  std::ranges::sort(names);
  for (std::string& name : names) {
    const std::string from = concat(root, "/", name);
    name += ".dropped";
    for (int n = 2; is_present(concat(root, "/", name)); ++n)
      name = concat(fs::path(from).filename().string(), ".dropped.", n);
    if (::rename(from.c_str(), concat(root, "/", name).c_str()) != 0)
      fail_file("rename", from, errno);
  }
  return names;
}

SavedCheckpoint save_checkpoint(const SaveOptions& options,
                                const std::vector<CheckpointPart>& parts,
                                const nlohmann::ordered_json& state, const CheckpointRanks& ranks) {
  const std::string directory = options.root + "/" + step_directory_name(options.step);
  const std::string temporary = directory + ".tmp";
  TRIREME_CHECK(options.resume_as.empty() || ranks.size == 1,
                "only a single rank resumes an unfinished checkpoint");
  const auto undo = [&] {
    if (options.resume_as.empty()) remove_tree(temporary);
  };
  const auto count = [&]() -> Json {
    int64_t bytes = 0;
    for (const CheckpointPart& part : parts) {
      check_part(part);
      bytes = checked_add(bytes, part.data.bytes());
    }
    return {{"bytes", bytes}};
  };
  const auto plan_files = [&](const std::vector<Json>& reports) {
    return prepare(options, temporary, reports);
  };
  const Json plan = agree(ranks, count, plan_files, undo);

  const std::string file = plan["files"][static_cast<size_t>(ranks.rank)];
  const auto write = [&] {
    return file.empty() ? Json::object() : write_shard(options, temporary, file, parts);
  };
  const auto finish = [&](const std::vector<Json>& reports) {
    TRIREME_CHECK(state.is_object() || state.is_null(), "the state is not a JSON object");
    const std::string state_text = state.is_null() ? "{}" : state.dump();
    Json published = publish(options, temporary, merge(reports, options.step, state_text));
    published["kept"] = reports.front().value("kept", int64_t{0});
    return published;
  };
  const Json done = agree(ranks, write, finish, undo);
  return {directory, plan["bytes"], done.value("kept", int64_t{0}),
          done.value("removed", std::vector<std::string>{}), done.value("warning", "")};
}

}  // namespace trireme
