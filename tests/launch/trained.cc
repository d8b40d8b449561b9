#include "tests/launch/trained.h"

#include <algorithm>
#include <cmath>

#include "parallel/layout/saved_tensors.h"
#include "runtime/base/log.h"
#include "runtime/checkpoint/checkpoint_store.h"
#include "runtime/optim/weight_average.h"
#include "tests/support/training.h"

namespace dtrain::test {
namespace {

double furthest(const std::vector<double>& got, const std::vector<double>& wanted) {
  if (got.size() != wanted.size()) return INFINITY;
  double most = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double apart = std::abs(got[i] - wanted[i]);
    if (got[i] != wanted[i]) most = std::max(most, std::isfinite(apart) ? apart : INFINITY);
  }
  return most;
}

}  // namespace

Trained trained_in(const std::filesystem::path& run_dir) {
  Trained trained{losses(run_dir), accuracies(run_dir), {}};
  if (trained.accuracies.size() > 1) trained.accuracies = {trained.accuracies.back()};
  NullLog log;
  const auto checkpoint = CheckpointStore(run_dir / "checkpoints", 0, log).latest();
  if (!checkpoint) return trained;
  NamedTensors state = load_tensors(checkpoint->optimizer, make_device("cpu"));
  for (const NamedTensors& tensors :
       {load_tensors(checkpoint->model, make_device("cpu")), take_averages(state)}) {
    for (const auto& [name, tensor] : tensors) trained.weights[name] = tensor.to_vector<double>();
  }
  return trained;
}

Difference difference(const Trained& got, const Trained& wanted) {
  Difference worst{furthest(got.losses, wanted.losses), furthest(got.accuracies, wanted.accuracies), 0};
  if (got.weights.size() != wanted.weights.size()) worst.weights = INFINITY;
  for (const auto& [name, values] : wanted.weights) {
    const auto found = got.weights.find(name);
    worst.weights =
        std::max(worst.weights, found == got.weights.end() ? INFINITY : furthest(found->second, values));
  }
  return worst;
}

}  // namespace dtrain::test
