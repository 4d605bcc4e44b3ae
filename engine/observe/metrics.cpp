#include "engine/observe/metrics.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine/core/error.h"
#include "engine/io/atomic_file.h"
#include "engine/io/input_file.h"
#include "engine/io/strict_json.h"
#include "engine/observe/log.h"

namespace trireme {
namespace {

using Json = nlohmann::ordered_json;

// Calls f(record, end of the line in bytes) for each complete line until f returns false.
template <class F>
void for_each_record(const std::string& path, const F& f) {
  require_file_or_pipe(path);
  std::ifstream in(path, std::ios::binary);
  if (!in) fail_file("read metrics", path, errno != 0 ? errno : ENOENT);
  std::string line;
  int64_t end = 0, number = 0;
  while (std::getline(in, line)) {
    ++number;
    end += static_cast<int64_t>(line.size()) + 1;
    if (in.eof()) return;  // no newline at the end: torn by a kill
    const Json record = parse_json_text<Json>(line);
    const bool whole =
        record.is_object() && record.contains("step") && record["step"].is_number_integer();
    if (!whole && in.peek() == std::ifstream::traits_type::eof()) return;  // torn by a crash
    if (!whole) {
      fail_input(path, ":", number,
                 ": not a metrics record; remove the line, or move the file away");
    }
    if (!f(record, end)) return;
  }
}

int open_for_append(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (descriptor < 0) fail_file("open", path, errno);
  return descriptor;
}

}  // namespace

nlohmann::ordered_json step_metrics_to_json(const StepMetrics& m) {
  Json json;
  json["step"] = m.step;
  json["consumed_samples"] = m.consumed_samples;
  json["consumed_tokens"] = m.consumed_tokens;
  json["tokens"] = m.tokens;
  json["loss"] = m.loss;
  json["grad_norm"] = m.grad_norm;
  json["lr"] = m.lr;
  json["loss_scale"] = m.loss_scale;
  json["step_ms"] = m.step_ms;
  json["tokens_per_second"] = m.tokens_per_second;
  json["model_tflops"] = m.model_tflops;
  json["flops_formula"] = m.flops_formula;
  json["mfu"] = m.mfu.has_value() ? Json(*m.mfu) : Json();
  json["arena_bytes"] = m.arena_bytes;
  json["allocation_count"] = m.allocation_count;
  json["skipped"] = m.skipped;
  json["skipped_iterations"] = m.skipped_iterations;
  json["nan_iterations"] = m.nan_iterations;
  if (m.validation_loss.has_value()) json["validation_loss"] = *m.validation_loss;
  for (const auto& [name, loss] : m.validation_losses) json["validation_losses"][name] = loss;
  if (m.test_loss.has_value()) json["test_loss"] = *m.test_loss;
  for (const auto& [name, value] : m.extra) json[name] = value;
  if (m.round.has_value()) {
    json["outer_ms"] = m.round->ms;
    json["outer_sent_bytes"] = m.round->sent_bytes;
    json["outer_update_norm"] = m.round->update_norm;
    json["outer_drift"] = m.round->drift;
  }
  return json;
}

MetricsFile::MetricsFile(std::string path, int64_t resume_step) : path_(std::move(path)) {
  int64_t keep = 0;
  if (resume_step >= 0 && std::filesystem::exists(path_)) {
    for_each_record(path_, [&](const Json& record, int64_t end) {
      if (record["step"].get<int64_t>() > resume_step) return false;
      keep = end;
      return true;
    });
  }
  descriptor_ = open_for_append(path_);
  if (::ftruncate(descriptor_, keep) != 0) fail_file("truncate", path_, errno);
}

MetricsFile::~MetricsFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

MetricsFile::MetricsFile(MetricsFile&& other) noexcept { *this = std::move(other); }

MetricsFile& MetricsFile::operator=(MetricsFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(warned_, other.warned_);
  return *this;
}

void MetricsFile::write(const nlohmann::ordered_json& record) {
  TRIREME_CHECK(descriptor_ >= 0, "the metrics writer has no file");
  const int error_number = append_whole(descriptor_, path_, record.dump() + "\n");
  if (error_number == 0 || std::exchange(warned_, true)) return;
  log_warning(
      "cannot write ", path_, ": ", std::strerror(error_number),
      "; the run continues without this record, and without further ones until there is room");
}

void MetricsFile::write(const StepMetrics& metrics) { write(step_metrics_to_json(metrics)); }

std::vector<nlohmann::ordered_json> read_metrics(const std::string& path) {
  std::vector<Json> records;
  for_each_record(path, [&](const Json& record, int64_t) {
    records.push_back(record);
    return true;
  });
  return records;
}

}  // namespace trireme
