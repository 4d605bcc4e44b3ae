#include "engine/io/byte_stream.h"

#include <zlib.h>
#include <zstd.h>

#include <cerrno>
#include <cstdio>
#include <vector>

#include "engine/core/error.h"
#include "engine/io/atomic_file.h"
#include "engine/io/input_file.h"

namespace trireme {
namespace {

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

class PlainStream : public ByteStream {
 public:
  // bytes: file size when it was listed; 0: unknown.
  PlainStream(std::string path, int64_t bytes) : path_(std::move(path)), bytes_(bytes) {
    require_regular_file(path_);
    file_.reset(std::fopen(path_.c_str(), "rbe"));
    if (!file_) fail_file("read", path_, errno);
  }
  size_t read(char* out, size_t capacity) override {
    const size_t bytes = std::fread(out, 1, capacity, file_.get());
    if (bytes == 0 && std::ferror(file_.get()) != 0) fail_file("read", path_, errno);
    position_ += static_cast<int64_t>(bytes);
    if (bytes == 0 && position_ < bytes_) fail_shrunk(path_, bytes_);
    return bytes;
  }
  int64_t position() const override { return position_; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  int64_t bytes_;
  std::unique_ptr<std::FILE, CloseFile> file_;
  int64_t position_ = 0;
};

// Buffer of compressed bytes between the file and a decoder.
class CompressedInput {
 public:
  explicit CompressedInput(const TextFile& file)
      : plain_(file.path, file.bytes), buffer_(256 << 10) {}
  // Reads more bytes once the last ones are used up; false at the end of the file.
  bool refill() {
    if (used < filled) return true;
    used = 0;
    filled = plain_.read(buffer_.data(), buffer_.size());
    return filled > 0;
  }
  char* next() { return buffer_.data() + used; }
  size_t left() const { return filled - used; }
  int64_t position() const { return plain_.position() - static_cast<int64_t>(left()); }
  [[noreturn]] void fail(const char* what) const {
    fail_input("cannot read ", plain_.path(), ": ", what);
  }
  size_t used = 0, filled = 0;

 private:
  PlainStream plain_;
  std::vector<char> buffer_;
};

class GzipStream : public ByteStream {
 public:
  explicit GzipStream(const TextFile& file) : input_(file) {
    constexpr int kGzipOnly = 16 + MAX_WBITS;
    TRIREME_CHECK(inflateInit2(&state_, kGzipOnly) == Z_OK, "zlib cannot be initialized");
  }
  ~GzipStream() override { inflateEnd(&state_); }

  size_t read(char* out, size_t capacity) override {
    state_.next_out = reinterpret_cast<Bytef*>(out);
    state_.avail_out = static_cast<uInt>(std::min<size_t>(capacity, 1 << 30));
    const uInt wanted = state_.avail_out;
    while (state_.avail_out == wanted) {
      if (!input_.refill()) {
        if (in_member_) input_.fail("the gzip data ends in the middle: the file is truncated");
        break;
      }
      state_.next_in = reinterpret_cast<Bytef*>(input_.next());
      state_.avail_in = static_cast<uInt>(input_.left());
      in_member_ = true;
      const int result = inflate(&state_, Z_NO_FLUSH);
      input_.used = input_.filled - state_.avail_in;
      if (result == Z_STREAM_END) {  // another member may follow
        in_member_ = false;
        inflateReset(&state_);
      } else if (result != Z_OK && result != Z_BUF_ERROR) {
        input_.fail("it is not gzip data, or is damaged");
      }
    }
    return wanted - state_.avail_out;
  }
  int64_t position() const override { return input_.position(); }

 private:
  CompressedInput input_;
  z_stream state_{};
  bool in_member_ = false;
};

class ZstdStream : public ByteStream {
 public:
  explicit ZstdStream(const TextFile& file) : input_(file), state_(ZSTD_createDStream()) {
    TRIREME_CHECK(state_ != nullptr, "zstd cannot be initialized");
  }
  size_t read(char* out, size_t capacity) override {
    ZSTD_outBuffer output{out, capacity, 0};
    while (output.pos == 0) {
      // If the output buffer was filled, the decoder may have more bytes without new input.
      const bool more = input_.refill();
      if (!more && !in_frame_) break;
      ZSTD_inBuffer piece{more ? input_.next() : nullptr, more ? input_.left() : 0, 0};
      const size_t result = ZSTD_decompressStream(state_.get(), &output, &piece);
      if (ZSTD_isError(result) != 0) input_.fail("it is not zstd data, or is damaged");
      input_.used += piece.pos;
      in_frame_ = result != 0;
      if (!more && output.pos == 0) {
        input_.fail("the zstd data ends in the middle: the file is truncated");
      }
    }
    return output.pos;
  }
  int64_t position() const override { return input_.position(); }

 private:
  struct Free {
    void operator()(ZSTD_DStream* state) const { ZSTD_freeDStream(state); }
  };
  CompressedInput input_;
  std::unique_ptr<ZSTD_DStream, Free> state_;
  bool in_frame_ = false;
};

}  // namespace

std::unique_ptr<ByteStream> open_byte_stream(const TextFile& file) {
  switch (file.compression) {
    case TextFile::Compression::kNone: return std::make_unique<PlainStream>(file.path, file.bytes);
    case TextFile::Compression::kGzip: return std::make_unique<GzipStream>(file);
    case TextFile::Compression::kZstd: return std::make_unique<ZstdStream>(file);
  }
  TRIREME_UNREACHABLE("compression ", static_cast<int>(file.compression));
}

}  // namespace trireme
