#include "optim/optimizers.h"

#include <algorithm>

#include "engine/core/error.h"
#include "optim/adamw.h"
#include "optim/config.h"
#include "optim/lion.h"
#include "optim/onebit_adam.h"
#include "optim/sgd.h"

namespace trireme {
namespace {

template <class T>
std::unique_ptr<Optimizer> make() {
  return std::make_unique<T>();
}

// Register a new optimizer by adding a row.
constexpr OptimizerRow kOptimizers[] = {
    {"AdamW", make<AdamW>, "AdamW decays the weights directly"},
    {"Adam", make<Adam>, "Adam adds the weight decay to the gradient", "AdamW"},
    {"SGD", make<Sgd>, ""},
    {"Lion", make<Lion>, "Lion updates by the sign of the momentum"},
    {"OneBitAdam", make<OneBitAdam>,
     "OneBitAdam is AdamW whose ranks exchange compressed momentum"},
};

constexpr const char* kUnavailableOptimizers[] = {
    "Lamb", "Muon", "Adagrad", "ZeroOneAdam", "OneBitLamb", "MuAdam", "MuAdamW", "MuSGD", "SOAP"};

}  // namespace

std::span<const OptimizerRow> optimizers() { return kOptimizers; }

std::span<const char* const> unavailable_optimizers() { return kUnavailableOptimizers; }

const OptimizerRow& optimizer_row(const std::string& name) {
  const auto* const found =
      std::ranges::find_if(kOptimizers, [&](const OptimizerRow& row) { return name == row.name; });
  TRIREME_CHECK(found != std::end(kOptimizers), "optimizer ", name, " is not in the table");
  return *found;
}

std::shared_ptr<const Optimizer> default_optimizer() { return kOptimizers[0].make(); }

}  // namespace trireme
