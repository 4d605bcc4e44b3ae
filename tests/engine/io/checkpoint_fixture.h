// Synthetic model whose tensors are cut at random, saved and loaded by simulated ranks (threads).
#pragma once

#include <algorithm>
#include <barrier>
#include <cstring>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "engine/io/sharded_checkpoint.h"
#include "tests/support/compare.h"

namespace trireme::test {

// Gather and broadcast between threads of one process.
class SimulatedRanks {
 public:
  explicit SimulatedRanks(int size)
      : size_(size), barrier_(size), slots_(static_cast<size_t>(size)) {}

  // Runs f(ranks) once per rank. Returns the error of each rank ("": none).
  std::vector<std::string> run(const std::function<void(const CheckpointRanks&)>& f) {
    std::vector<std::string> errors(static_cast<size_t>(size_));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size_; ++rank) {
      threads.emplace_back([this, rank, &f, &errors] {
        try {
          f(ranks_of(rank));
        } catch (const std::exception& error) {
          errors[static_cast<size_t>(rank)] = error.what();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    return errors;
  }

 private:
  CheckpointRanks ranks_of(int rank) {
    CheckpointRanks ranks{rank, size_, {}, {}};
    ranks.gather = [this, rank](const std::string& mine) {
      slots_[static_cast<size_t>(rank)] = mine;
      barrier_.arrive_and_wait();
      std::vector<std::string> all = slots_;
      barrier_.arrive_and_wait();
      return all;
    };
    ranks.broadcast = [this, rank](const std::string& value) {
      if (rank == 0) slots_[0] = value;
      barrier_.arrive_and_wait();
      std::string received = slots_[0];
      barrier_.arrive_and_wait();
      return received;
    };
    return ranks;
  }
  int size_;
  std::barrier<> barrier_;
  std::vector<std::string> slots_;
};

struct FakeTensor {
  std::string kind, name;
  std::vector<int64_t> shape;
  TestTensor values;
};

inline std::vector<FakeTensor> fake_model(const std::string& flavour = "") {
  std::vector<FakeTensor> model;
  const auto add = [&](const char* kind, DType dtype, const std::string& name,
                       const std::vector<int64_t>& shape) {
    const Shape s{std::span<const int64_t>(shape)};
    const auto values = normals(flavour + kind + name, s.numel());
    model.push_back({kind, name, shape, TestTensor(dtype, s, values)});
  };
  const std::vector<std::pair<std::string, std::vector<int64_t>>> shapes = {
      {"embed.weight", {33, 8}},
      {"layers.0.up.weight", {12, 8}},
      {"layers.0.norm.weight", {7}},
      {"layers.0.scale", {}},
      {"layers.0.experts", {3, 4, 5}}};
  for (const auto& [name, shape] : shapes) {
    add(kKindParam, DType::kBF16, name, shape);
    add(kKindMaster, DType::kF32, name, shape);
    add(kKindExpAvg, DType::kF64, name, shape);
  }
  return model;
}

// Cuts [0, n) at random into `ranks` ranges, some of which are empty.
inline std::vector<int64_t> random_cuts(int64_t n, int ranks, std::mt19937& random) {
  std::vector<int64_t> cuts = {0, n};
  for (int i = 1; i < ranks; ++i) {
    cuts.push_back(static_cast<int64_t>(random() % static_cast<uint64_t>(n + 1)));
  }
  std::sort(cuts.begin(), cuts.end());
  return cuts;
}

// Box of tensor rank `t` of `tp`, split along dimension `dim` as evenly as possible.
inline TensorBox split_box(const std::vector<int64_t>& shape, size_t dim, int t, int tp) {
  TensorBox box = whole_box(shape);
  const int64_t n = shape[dim];
  box.start[dim] = n * t / tp;
  box.extent[dim] = n * (t + 1) / tp - box.start[dim];
  return box;
}

// Elements [begin, end) of a flattened box, as one contiguous tensor.
inline TestTensor cut_out(const FakeTensor& tensor, const TensorBox& box, int64_t begin,
                          int64_t end) {
  const TensorPart part{box, begin, end}, whole{whole_box(tensor.shape), 0, tensor.values->numel()};
  const int64_t size = dtype_size(tensor.values->dtype());
  TestTensor out(tensor.values->dtype(), Shape{end - begin});
  for_each_common_run(tensor.shape, part, whole, [&](const CommonRun& run) {
    std::memcpy(static_cast<std::byte*>(out->raw()) + run.first_offset * size,
                static_cast<const std::byte*>(tensor.values->raw()) + run.second_offset * size,
                static_cast<size_t>(run.length * size));
  });
  return out;
}

struct OwnedParts {
  std::vector<TestTensor> storage;
  std::vector<CheckpointPart> parts;
};

// Random layout of the model over ranks: tensors of rank 2 and higher are cut into `tp` boxes along
// a random dimension, each box into flat ranges over the other ranks.
inline std::vector<OwnedParts> random_layout(const std::vector<FakeTensor>& model, int tp, int dp,
                                             uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<OwnedParts> ranks(static_cast<size_t>(tp * dp));
  for (const FakeTensor& tensor : model) {
    const bool split = tensor.shape.size() >= 2;
    const size_t dim = split ? random() % tensor.shape.size() : 0;
    for (int t = 0; t < (split ? tp : 1); ++t) {
      const TensorBox box = split ? split_box(tensor.shape, dim, t, tp) : whole_box(tensor.shape);
      const std::vector<int64_t> cuts = random_cuts(box.numel(), dp, random);
      for (int d = 0; d < dp; ++d) {
        const int64_t begin = cuts[static_cast<size_t>(d)], end = cuts[static_cast<size_t>(d) + 1];
        OwnedParts& owned = ranks[static_cast<size_t>(t * dp + d)];
        owned.storage.push_back(cut_out(tensor, box, begin, end));
        owned.parts.push_back(
            {tensor.kind, tensor.name, tensor.shape, box, begin, *owned.storage.back()});
      }
    }
  }
  return ranks;
}

// Saves the model from tp * dp ranks. Returns the errors of the ranks.
inline std::vector<std::string> save_model(const std::vector<FakeTensor>& model,
                                           const SaveOptions& options, int tp, int dp,
                                           uint32_t seed) {
  const auto layout = random_layout(model, tp, dp, seed);
  const nlohmann::ordered_json state = {{"step", options.step}, {"lr", 0.1}, {"a", {{"b", "c"}}}};
  SimulatedRanks ranks(tp * dp);
  return ranks.run([&](const CheckpointRanks& r) {
    save_checkpoint(options, layout[static_cast<size_t>(r.rank)].parts, state, r);
  });
}

// Loads every part of a random layout and compares bit by bit. Returns "" or the first difference.
inline std::string load_and_compare(const std::vector<FakeTensor>& model, const std::string& path,
                                    int tp, int dp, uint32_t seed) {
  const CheckpointReader reader(path);
  for (const OwnedParts& owned : random_layout(model, tp, dp, seed)) {
    for (const CheckpointPart& part : owned.parts) {
      const TestTensor got(part.data.dtype(), part.data.shape());
      const auto& tensor = reader.require(part.kind, part.name, part.data.dtype(), part.shape);
      reader.read(tensor, part.box, part.begin, *got);
      const std::string difference = compare_exact(*got, part.data);
      if (!difference.empty()) return part.kind + " " + part.name + ": " + difference;
      if (!got.guards_intact()) return part.kind + " " + part.name + ": wrote outside";
    }
  }
  return "";
}

}  // namespace trireme::test
