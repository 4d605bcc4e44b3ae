#include "engine/observe/tensorboard.h"

#include <fcntl.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <span>
#include <utility>

#include "engine/core/error.h"
#include "engine/io/atomic_file.h"
#include "engine/observe/log.h"

namespace trireme {
namespace {

// Protocol buffer wire format: a key (field number * 8 + wire type), then the value.
enum WireType : uint64_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

template <class T>
void append_little_endian(std::string& out, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) out.push_back(static_cast<char>(value >> (8 * i) & 0xff));
}

void append_varint(std::string& out, uint64_t value) {
  while (value >= 0x80) {
    out.push_back(static_cast<char>((value & 0x7f) | 0x80));
    value >>= 7;
  }
  out.push_back(static_cast<char>(value));
}

void append_key(std::string& out, uint64_t field, WireType type) {
  append_varint(out, field * 8 + type);
}

void append_bytes(std::string& out, uint64_t field, std::string_view bytes) {
  append_key(out, field, kBytes);
  append_varint(out, bytes.size());
  out.append(bytes);
}

// Event { double wall_time = 1; int64 step = 2; ... }
std::string event(double wall_time, int64_t step) {
  std::string out;
  append_key(out, 1, kFixed64);
  append_little_endian(out, std::bit_cast<uint64_t>(wall_time));
  append_key(out, 2, kVarint);
  append_varint(out, static_cast<uint64_t>(step));
  return out;
}

// TFRecord stores a rotated and shifted CRC, so that a CRC over data that holds CRCs stays useful.
uint32_t masked_crc(std::string_view bytes) {
  const uint32_t crc = crc32c(std::as_bytes(std::span(bytes)));
  return std::rotr(crc, 15) + 0xa282ead8u;
}

double now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

std::string tfrecord(std::string_view payload) {
  std::string out;
  append_little_endian(out, static_cast<uint64_t>(payload.size()));
  append_little_endian(out, masked_crc(out));
  out.append(payload);
  append_little_endian(out, masked_crc(payload));
  return out;
}

std::string scalar_event(double wall_time, int64_t step, std::string_view tag, float value) {
  std::string scalar;  // Summary.Value { string tag = 1; float simple_value = 2; }
  append_bytes(scalar, 1, tag);
  append_key(scalar, 2, kFixed32);
  append_little_endian(scalar, std::bit_cast<uint32_t>(value));
  std::string summary;  // Summary { repeated Value value = 1; }
  append_bytes(summary, 1, scalar);
  std::string out = event(wall_time, step);
  append_bytes(out, 5, summary);
  return out;
}

TensorBoardWriter::TensorBoardWriter(const std::string& directory, int64_t first_step) {
  make_directories(directory);
  // A unique name per start. TensorBoard reads the files of a directory in the order of their
  // names, so these must sort by time, even if a run is started twice within a second.
  double time = 0;
  do {
    time = now();
    path_ = concat(directory, "/events.out.tfevents.", static_cast<int64_t>(time * 1e6));
    descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  } while (descriptor_ < 0 && errno == EEXIST);
  if (descriptor_ < 0) fail_file("create", path_, errno);
  std::string version = event(time, 0);
  append_bytes(version, 3, "brain.Event:2");
  std::string session;  // SessionLog { SessionStatus status = 1; } with START = 1
  append_key(session, 1, kVarint);
  append_varint(session, 1);
  std::string start = event(time, first_step);
  append_bytes(start, 7, session);
  if (const int error_number =
          append_whole(descriptor_, path_, tfrecord(version) + tfrecord(start)))
    fail_file("write", path_, error_number);
}

TensorBoardWriter::~TensorBoardWriter() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

TensorBoardWriter::TensorBoardWriter(TensorBoardWriter&& other) noexcept {
  *this = std::move(other);
}

TensorBoardWriter& TensorBoardWriter::operator=(TensorBoardWriter&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(warned_, other.warned_);
  return *this;
}

void TensorBoardWriter::append(const std::string& bytes) {
  TRIREME_CHECK(descriptor_ >= 0, "the TensorBoard writer has no file");
  const int error_number = append_whole(descriptor_, path_, bytes);
  if (error_number == 0 || std::exchange(warned_, true)) return;
  log_warning(
      "cannot write ", path_, ": ", std::strerror(error_number),
      "; the run continues without these events, and without further ones until there is room");
}

void TensorBoardWriter::scalar(int64_t step, std::string_view tag, double value) {
  append(tfrecord(scalar_event(now(), step, tag, static_cast<float>(value))));
}

void TensorBoardWriter::write(const StepMetrics& m) {
  const double time = now();
  std::string bytes;
  const auto add = [&](std::string_view tag, double value) {
    bytes += tfrecord(scalar_event(time, m.step, tag, static_cast<float>(value)));
  };
  add("lm loss", m.loss);
  add("learning-rate", m.lr);
  add("grad-norm", m.grad_norm);
  add("loss-scale", m.loss_scale);
  add("batch-size", static_cast<double>(m.global_batch_size));
  add("iteration-time", m.step_ms / 1000);
  add("throughput", m.model_tflops);
  add("tokens-per-second", m.tokens_per_second);
  if (m.mfu.has_value()) add("mfu", *m.mfu);
  if (m.validation_loss.has_value()) add("lm loss validation", *m.validation_loss);
  // TensorBoard groups charts by the part of the name before a slash.
  for (const auto& [name, loss] : m.validation_losses)
    add(concat("lm loss validation/", name), loss);
  if (m.test_loss.has_value()) add("lm loss test", *m.test_loss);
  append(bytes);
}

}  // namespace trireme
