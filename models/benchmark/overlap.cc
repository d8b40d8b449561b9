#include "models/benchmark/overlap.h"

#include <algorithm>

#include "models/benchmark/samples.h"

namespace dtrain {

double StepTimes::hidden_share() const noexcept {
  return communication > 0 ? std::clamp(1 - exposed() / communication, 0.0, 1.0) : 0;
}

StepTimes measure_overlap(StepRunner& runner, Communicator& communicator, Device& device, int warmup,
                          int iterations, Duration timeout) {
  std::vector<double> step, compute, communication;
  const auto time = [&](auto body) {
    communicator.barrier("bench")->wait(Deadline::after(timeout));
    return seconds_of(device, body);
  };
  const bool alone = communicator.size() == 1;
  for (int i = -warmup; i < iterations; ++i) {
    const double whole = time([&] { runner.step(); });
    const double computing = alone ? whole : time([&] { runner.compute(); });
    const double communicating = alone ? 0 : time([&] { runner.communicate(); });
    if (i < 0) continue;
    step.push_back(whole);
    compute.push_back(computing);
    communication.push_back(communicating);
  }
  for (auto* samples : {&step, &compute, &communication})
    take_slowest_rank(communicator, *samples, Deadline::after(timeout));
  return {median(step), least(step), median(compute), median(communication)};
}

}  // namespace dtrain
