// Schedules from files: {"version": 1, "stages": 2, "chunks": 1, "micro_batches": 2,
//                        "ranks": [["F0", "F1", "B0", "B1"], ["F0", "B0", "F1", "B1"]]}
#include "parallel/pipeline/schedule_file.h"

#include <charconv>
#include <vector>

#include "engine/io/atomic_file.h"
#include "engine/io/strict_json.h"
#include "parallel/pipeline/check_schedule.h"

namespace trireme {
namespace {

constexpr int64_t kVersion = 1;
constexpr int64_t kMaxFileBytes = int64_t{256} << 20;

// "F3": forward of micro-batch 3 in chunk 0; "F3.1": in chunk 1. B: whole backward, I: its half for
// the input, W: its half for the weights.
constexpr char kLetters[] = {'F', 'B', 'I', 'W'};

const char* take_index(const char* from, const char* end, int* index) {
  const auto [at, error] = std::from_chars(from, end, *index);
  return error == std::errc() && *from != '-' ? at : nullptr;
}

Instruction parse_instruction(const nlohmann::json& value, const std::string& where) {
  const auto fail = [&] {
    fail_input(where, ": ", value.dump().substr(0, 40),
               " is not an instruction; expected F, B, I or W, the micro-batch and, with several "
               "chunks, a dot and the chunk: \"F3\", \"B3.1\"");
  };
  if (!value.is_string()) fail();
  const std::string& word = value.get_ref<const std::string&>();
  Instruction in;
  bool known = false;
  for (size_t k = 0; k < std::size(kLetters); ++k) {
    if (word.empty() || word[0] != kLetters[k]) continue;
    in.kind = static_cast<InstructionKind>(k);
    known = true;
  }
  if (!known) fail();
  const char* const end = word.data() + word.size();
  const char* at = take_index(word.data() + 1, end, &in.micro_batch);
  if (at != nullptr && at != end) at = *at == '.' ? take_index(at + 1, end, &in.chunk) : nullptr;
  if (at != end) fail();
  return in;
}

std::string instruction_word(const Instruction& in, int chunks) {
  const char letter = kLetters[static_cast<size_t>(in.kind)];
  return chunks == 1 ? concat(letter, in.micro_batch)
                     : concat(letter, in.micro_batch, ".", in.chunk);
}

int size_member(const nlohmann::json& json, const char* key, const std::string& what) {
  if (!json.contains(key)) fail_input(what, ": \"", key, "\" is missing");
  const int64_t value = strict_size(json[key], concat(what, ": \"", key, "\""));
  if (value < 1 || value > kMaxChunkVisits)
    fail_input(what, ": \"", key, "\" is ", value, ", expected 1 to ", kMaxChunkVisits);
  return static_cast<int>(value);
}

void check_members(const nlohmann::json& json, const std::string& what) {
  if (!json.is_object()) fail_input(what, ": expected a JSON object");
  for (const auto& [key, value] : json.items()) {
    const bool known = key == "version" || key == "stages" || key == "chunks" ||
                       key == "micro_batches" || key == "ranks" || key == "comment";
    if (!known)
      fail_input(what, ": unknown member \"", key.substr(0, 60),
                 "\"; supported: version, stages, chunks, micro_batches, ranks, comment");
  }
  if (!json.contains("version")) fail_input(what, ": \"version\" is missing; expected ", kVersion);
  const int64_t version = strict_size(json["version"], concat(what, ": \"version\""));
  if (version != kVersion)
    fail_input(what, ": \"version\" is ", version, "; this program reads version ", kVersion);
}

}  // namespace

Schedule parse_schedule(const std::string& json_text, const std::string& what) {
  const auto json = parse_strict_json<nlohmann::json>(json_text, what, {4, 64});
  check_members(json, what);
  Schedule schedule;
  schedule.kind = ScheduleKind::kCustom;
  schedule.name = what;
  schedule.stages = size_member(json, "stages", what);
  schedule.chunks = json.contains("chunks") ? size_member(json, "chunks", what) : 1;
  schedule.micro_batches = size_member(json, "micro_batches", what);
  // Each factor is at most 2^22, so the first product fits.
  if (int64_t{schedule.stages} * schedule.chunks > kMaxChunkVisits / schedule.micro_batches)
    fail_input(what, ": stages x chunks x micro_batches is more than ", kMaxChunkVisits);
  if (!json.contains("ranks") || !json["ranks"].is_array())
    fail_input(what, ": \"ranks\" must be a list with one list of instructions per rank");
  const nlohmann::json& ranks = json["ranks"];
  if (std::ssize(ranks) != schedule.stages)
    fail_input(what, ": \"ranks\" has ", ranks.size(), " lists for ", schedule.stages, " stages");
  for (const nlohmann::json& list : ranks) {
    const std::string where = concat(what, ": rank ", schedule.ranks.size());
    if (!list.is_array()) fail_input(where, " is not a list of instructions");
    std::vector<Instruction>& order = schedule.ranks.emplace_back();
    order.reserve(list.size());
    for (const nlohmann::json& value : list)
      order.push_back(parse_instruction(value, concat(where, ", instruction ", order.size())));
  }
  check_schedule(schedule, what);
  return schedule;
}

Schedule read_schedule_file(const std::string& path) {
  return parse_schedule(read_small_file(path, kMaxFileBytes), path);
}

std::string schedule_json(const Schedule& schedule) {
  // One line per rank. Written by hand, because the library writes one line per instruction or a
  // single line.
  std::string out = concat("{\n  \"version\": ", kVersion, ",\n  \"stages\": ", schedule.stages,
                           ",\n  \"chunks\": ", schedule.chunks,
                           ",\n  \"micro_batches\": ", schedule.micro_batches, ",\n  \"ranks\": [");
  for (size_t r = 0; r < schedule.ranks.size(); ++r) {
    out += r == 0 ? "\n    [" : ",\n    [";
    for (size_t i = 0; i < schedule.ranks[r].size(); ++i)
      out += concat(i == 0 ? "\"" : ", \"", instruction_word(schedule.ranks[r][i], schedule.chunks),
                    "\"");
    out += "]";
  }
  return out + "\n  ]\n}\n";
}

}  // namespace trireme
