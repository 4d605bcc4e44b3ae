#include "optim/state_storage.h"

#include "engine/ops/rows/elementwise.h"
#include "optim/state_file.h"

namespace trireme {

StateStorage::StateStorage(std::vector<Kind> kinds, int64_t elements, const OffloadConfig& offload)
    : elements_(elements), kinds_(std::move(kinds)), offload_(offload) {}

StateStorage::~StateStorage() = default;

void StateStorage::allocate(Ctx& ctx) {
  if (offload_.device == OffloadDevice::kFile) {
    file_ = std::make_unique<StateFile>(kinds_, elements_, offload_);
    return;
  }
  for (const Kind& kind : kinds_) {
    memory_.emplace_back(kind.name, elements_ * dtype_size(kind.dtype), ctx.memory());
    // GPU memory is uninitialized; host memory is zero and not yet touched.
    if (ctx.gpu != nullptr) fill_zero(ctx, memory_.back().tensor(kind.dtype, Shape{elements_}));
  }
}

int64_t StateStorage::memory_bytes() const {
  if (offload_.device == OffloadDevice::kFile)
    return StateFile::memory_bytes(kinds_, elements_, offload_);
  int64_t bytes = 0;
  for (const Kind& kind : kinds_) bytes += elements_ * dtype_size(kind.dtype);
  return bytes;
}

int64_t StateStorage::file_bytes() const {
  return offload_.device == OffloadDevice::kFile ? StateFile::file_bytes(kinds_, elements_) : 0;
}

void StateStorage::for_each_window(const Visit& f) {
  if (file_) return file_->for_each_window(f);
  std::vector<Tensor> states;
  for (size_t k = 0; k < kinds_.size(); ++k) states.push_back(whole(k));
  f({0, elements_}, states);
}

Tensor StateStorage::whole(size_t kind) const {
  if (file_) return file_->whole(kind);
  return memory_[kind].tensor(kinds_[kind].dtype, Shape{elements_});
}

}  // namespace trireme
