#include "worker/benchmark/overlap.h"

#include <algorithm>

#include "worker/benchmark/samples.h"

namespace dtrain {

Exposed exposed(const StepSamples& samples) {
  std::vector<double> added;
  for (std::size_t i = 0; i < samples.step.size(); ++i) added.push_back(samples.step[i] - samples.compute[i]);
  return {median(added), quantile(added, 0.25), quantile(added, 0.75)};
}

double hidden_share(const StepSamples& samples) {
  const double communication = median(samples.communication);
  return communication > 0 ? std::clamp(1 - exposed(samples).median / communication, 0.0, 1.0) : 0;
}

StepSamples measure_overlap(StepRunner& runner, Communicator& communicator, Device& device, int warmup,
                            int iterations, Duration timeout) {
  StepSamples samples;
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
    samples.step.push_back(whole);
    samples.compute.push_back(computing);
    if (!alone) samples.communication.push_back(communicating);
  }
  for (auto* times : {&samples.step, &samples.compute, &samples.communication})
    take_slowest_rank(communicator, *times, Deadline::after(timeout));
  return samples;
}

}  // namespace dtrain
