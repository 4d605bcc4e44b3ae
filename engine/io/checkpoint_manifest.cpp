#include "engine/io/checkpoint_manifest.h"

#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <utility>

#include "engine/core/tensor.h"
#include "engine/io/checksum.h"
#include "engine/io/strict_json.h"

namespace trireme {
namespace {

using OrderedJson = nlohmann::ordered_json;

// Last entry of the file. Its length is fixed, so it can be cut off before the JSON is parsed.
constexpr std::string_view kSeal = ",\n\"manifest_checksum\": \"";
constexpr size_t kSealBytes = kSeal.size() + 16 + sizeof("\"\n}\n") - 1;
constexpr size_t kMaxBoxes = 4096;  // distinct boxes of one tensor; tensor-parallel ranks

uint64_t text_checksum(std::string_view s) { return checksum(std::as_bytes(std::span(s))); }

OrderedJson slice_to_json(const CheckpointSlice& slice, const CheckpointTensor& tensor) {
  OrderedJson json;
  if (slice.part.box != whole_box(tensor.shape)) {
    json["box_start"] = slice.part.box.start;
    json["box_extent"] = slice.part.box.extent;
  }
  json["begin"] = slice.part.begin;
  json["end"] = slice.part.end;
  json["shard"] = slice.shard;
  json["offset"] = slice.offset;
  json["bytes"] = slice.bytes;
  json["checksum"] = checksum_text(slice.checksum);
  return json;
}

DType dtype_from_name(const std::string& name, const std::string& what) {
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kBF16, DType::kF16, DType::kI64,
                            DType::kI32, DType::kU16, DType::kU8}) {
    if (name == dtype_name(dtype)) return dtype;
  }
  fail_input(what, ": unknown dtype \"", name, "\"");
}

// Typed access to the members of one object; every failure names the object.
class Fields {
 public:
  Fields(const OrderedJson& json, std::string what) : json_(json), what_(std::move(what)) {
    if (!json.is_object()) fail_input(what_, " is not an object");
  }
  const OrderedJson& at(const char* key) const {
    const auto it = json_.find(key);
    if (it == json_.end()) fail_input(what_, " has no \"", key, "\"");
    return *it;
  }
  bool has(const char* key) const { return json_.contains(key); }
  int64_t size(const char* key) const { return strict_size(at(key), label(key)); }
  std::string string(const char* key) const {
    if (!at(key).is_string()) fail_input(label(key), " is not a string");
    return at(key).get<std::string>();
  }
  uint64_t checksum(const char* key) const {
    uint64_t value = 0;
    if (!parse_checksum(string(key), value)) fail_input(label(key), " is not 16 hex digits");
    return value;
  }
  const OrderedJson& list(const char* key) const {
    if (!at(key).is_array()) fail_input(label(key), " is not a list");
    return at(key);
  }
  std::vector<int64_t> sizes(const char* key) const {
    std::vector<int64_t> values;
    for (const auto& value : list(key)) values.push_back(strict_size(value, label(key)));
    return values;
  }
  const std::string& what() const { return what_; }

 private:
  std::string label(const char* key) const { return concat(what_, ": \"", key, "\""); }
  const OrderedJson& json_;
  std::string what_;
};

CheckpointShard read_shard(const Fields& fields) {
  CheckpointShard shard;
  shard.file = fields.string("file");
  const bool plain = !shard.file.empty() && shard.file.find('/') == std::string::npos &&
                     shard.file.find('\0') == std::string::npos && shard.file[0] != '.';
  if (!plain) fail_input(fields.what(), ": \"", shard.file, "\" is not a plain file name");
  shard.bytes = fields.size("bytes");
  shard.checksum = fields.checksum("checksum");
  return shard;
}

CheckpointSlice read_slice(const Fields& fields, const CheckpointTensor& tensor,
                           const std::vector<CheckpointShard>& shards) {
  CheckpointSlice slice;
  slice.part.box = whole_box(tensor.shape);
  if (fields.has("box_start")) {
    slice.part.box = {fields.sizes("box_start"), fields.sizes("box_extent")};
  }
  const std::string problem = check_box(slice.part.box, tensor.shape);
  if (!problem.empty()) fail_input(fields.what(), ": ", problem);
  slice.part.begin = fields.size("begin");
  slice.part.end = fields.size("end");
  if (slice.part.begin >= slice.part.end || slice.part.end > slice.part.box.numel()) {
    fail_input(fields.what(), ": elements [", slice.part.begin, ", ", slice.part.end,
               ") are outside the box of ", slice.part.box.numel());
  }
  slice.shard = fields.size("shard");
  if (slice.shard >= static_cast<int64_t>(shards.size())) {
    fail_input(fields.what(), ": shard ", slice.shard, " of ", shards.size());
  }
  slice.offset = fields.size("offset");
  slice.bytes = fields.size("bytes");
  const int64_t elements = slice.part.end - slice.part.begin;
  if (slice.bytes % dtype_size(tensor.dtype) != 0 ||
      slice.bytes / dtype_size(tensor.dtype) != elements) {
    fail_input(fields.what(), ": ", slice.bytes, " bytes for ", elements, " elements of ",
               tensor.dtype);
  }
  const CheckpointShard& shard = shards[static_cast<size_t>(slice.shard)];
  if (slice.offset > shard.bytes || slice.bytes > shard.bytes - slice.offset) {
    fail_input(fields.what(), ": ", slice.bytes, " bytes from ", slice.offset, " on exceed the ",
               shard.bytes, " bytes of ", shard.file);
  }
  slice.checksum = fields.checksum("checksum");
  return slice;
}

bool boxes_overlap(const TensorBox& a, const TensorBox& b) {
  for (size_t d = 0; d < a.start.size(); ++d) {
    if (a.start[d] >= b.start[d] + b.extent[d] || b.start[d] >= a.start[d] + a.extent[d]) {
      return false;
    }
  }
  return true;
}

// Checks that every element is covered exactly once: boxes are disjoint, ranges inside a box too,
// and the counts add up.
void check_cover(const CheckpointTensor& tensor, const std::string& what) {
  using Range = std::pair<int64_t, int64_t>;
  std::map<std::pair<std::vector<int64_t>, std::vector<int64_t>>, std::vector<Range>> by_box;
  int64_t elements = 0;
  for (const CheckpointSlice& slice : tensor.slices) {
    by_box[{slice.part.box.start, slice.part.box.extent}].push_back(
        {slice.part.begin, slice.part.end});
    if (__builtin_add_overflow(elements, slice.part.end - slice.part.begin, &elements)) {
      fail_input(what, ": more elements than 64 bits can count");
    }
  }
  if (by_box.size() > kMaxBoxes) fail_input(what, ": more than ", kMaxBoxes, " different boxes");
  for (auto& [box, ranges] : by_box) {
    std::sort(ranges.begin(), ranges.end());
    for (size_t i = 1; i < ranges.size(); ++i) {
      if (ranges[i].first < ranges[i - 1].second) {
        fail_input(what, ": element ", ranges[i].first, " of box ",
                   TensorBox{box.first, box.second}.str(), " is stored twice");
      }
    }
  }
  for (auto a = by_box.begin(); a != by_box.end(); ++a) {
    for (auto b = std::next(a); b != by_box.end(); ++b) {
      const TensorBox first{a->first.first, a->first.second};
      const TensorBox second{b->first.first, b->first.second};
      if (boxes_overlap(first, second)) {
        fail_input(what, ": boxes ", first.str(), " and ", second.str(), " overlap");
      }
    }
  }
  if (elements != tensor.numel()) {
    fail_input(what, ": ", tensor.numel() - elements, " of its ", tensor.numel(),
               " elements are stored nowhere");
  }
}

CheckpointTensor read_tensor(const Fields& fields, const std::vector<CheckpointShard>& shards,
                             const std::string& path) {
  CheckpointTensor tensor;
  tensor.kind = fields.string("kind");
  tensor.name = fields.string("name");
  const std::string what = concat(path, ": ", tensor.kind, " \"", tensor.name, "\"");
  tensor.dtype = dtype_from_name(fields.string("dtype"), what);
  tensor.shape = fields.sizes("shape");
  const std::string problem = check_box(whole_box(tensor.shape), tensor.shape);
  if (!problem.empty()) fail_input(what, ": ", problem);
  if (tensor.numel() > INT64_MAX / dtype_size(tensor.dtype))
    fail_input(what, ": size exceeds 63 bits");
  for (const auto& slice : fields.list("slices")) {
    const std::string slice_what = concat(what, " slice ", tensor.slices.size());
    tensor.slices.push_back(read_slice(Fields(slice, slice_what), tensor, shards));
  }
  check_cover(tensor, what);
  return tensor;
}

// Manifest text without its seal.
std::string_view check_seal(std::string_view manifest_text, const std::string& path) {
  const bool sealed = manifest_text.size() > kSealBytes && manifest_text.ends_with("\"\n}\n") &&
                      manifest_text.substr(manifest_text.size() - kSealBytes).starts_with(kSeal);
  if (!sealed) fail_input(path, ": truncated or not a checkpoint manifest");
  const std::string_view body = manifest_text.substr(0, manifest_text.size() - kSealBytes);
  const std::string digits(manifest_text.substr(body.size() + kSeal.size(), 16));
  uint64_t written = 0;
  if (!parse_checksum(digits, written) || written != text_checksum(body)) {
    fail_input(path, ": damaged, or changed after it was written (checksum ",
               checksum_text(text_checksum(body)), ", recorded ", digits, ")");
  }
  return body;
}

void check_format(const Fields& top, const std::string& path) {
  if (top.string("format") != kCheckpointFormat) {
    fail_input(path, ": format \"", top.string("format"), "\", expected \"", kCheckpointFormat,
               "\"");
  }
  const int64_t version = top.size("version");
  if (version != kCheckpointVersion) {
    fail_input(path, ": version ", version,
               " of the checkpoint format; this program reads version ", kCheckpointVersion,
               ", use the one that wrote it (", top.string("engine_version"), ")");
  }
}

}  // namespace

int64_t CheckpointTensor::numel() const { return whole_box(shape).numel(); }

std::string manifest_to_text(const CheckpointManifest& manifest) {
  OrderedJson json;
  json["format"] = kCheckpointFormat;
  json["version"] = manifest.version;
  json["engine_version"] = manifest.engine_version;
  json["step"] = manifest.step;
  json["state"] = parse_json_text<OrderedJson>(manifest.state.empty() ? "{}" : manifest.state);
  std::string out = json.dump(1, ' ');
  out.resize(out.size() - 2);  // the closing "\n}": lists follow, one entry per line
  const auto append_list = [&out](const char* key, const auto& items, const auto& to_json) {
    out += concat(",\n\"", key, "\": [");
    const char* separator = "\n ";
    for (const auto& item : items) {
      out += separator + to_json(item).dump();
      separator = ",\n ";
    }
    out += "\n]";
  };
  append_list("shards", manifest.shards, [](const CheckpointShard& shard) {
    return OrderedJson{
        {"file", shard.file}, {"bytes", shard.bytes}, {"checksum", checksum_text(shard.checksum)}};
  });
  append_list("tensors", manifest.tensors, [](const CheckpointTensor& tensor) {
    OrderedJson entry{{"kind", tensor.kind},
                      {"name", tensor.name},
                      {"dtype", dtype_name(tensor.dtype)},
                      {"shape", tensor.shape},
                      {"slices", OrderedJson::array()}};
    for (const auto& slice : tensor.slices) {
      entry["slices"].push_back(slice_to_json(slice, tensor));
    }
    return entry;
  });
  const uint64_t seal = text_checksum(out);
  return out.append(kSeal).append(checksum_text(seal)).append("\"\n}\n");
}

CheckpointManifest manifest_from_text(const std::string& manifest_text, const std::string& path) {
  const std::string body(check_seal(manifest_text, path));
  const JsonLimits limits{.depth = 64, .keys_per_object = 10000};
  const auto json = parse_strict_json<OrderedJson>(body + "}", path, limits);
  const Fields top(json, path);
  check_format(top, path);
  CheckpointManifest manifest;
  manifest.engine_version = top.string("engine_version");
  manifest.step = top.size("step");
  if (!top.at("state").is_object()) fail_input(path, ": \"state\" is not an object");
  manifest.state = top.at("state").dump();
  std::set<std::string> files;
  for (const auto& shard : top.list("shards")) {
    const std::string what = concat(path, ": shard ", manifest.shards.size());
    manifest.shards.push_back(read_shard(Fields(shard, what)));
    const std::string& file = manifest.shards.back().file;
    if (!files.insert(file).second) fail_input(what, ": ", file, " is listed twice");
  }
  std::pair<std::string, std::string> previous;
  for (const auto& entry : top.list("tensors")) {
    const std::string what = concat(path, ": tensor ", manifest.tensors.size());
    manifest.tensors.push_back(read_tensor(Fields(entry, what), manifest.shards, path));
    const CheckpointTensor& tensor = manifest.tensors.back();
    const std::pair key{tensor.kind, tensor.name};
    if (manifest.tensors.size() > 1 && key <= previous) {
      fail_input(what, ": ", tensor.kind, " \"", tensor.name, "\" is out of order or listed twice");
    }
    previous = key;
  }
  return manifest;
}

}  // namespace trireme
