// Prints how much faster two branches are at the same time, by fork() and wait(), than one after the other,
// forwards and backwards, in turns; a thread for each branch. Exits with 1 where gradients differ.
//
//   fork_speed [ROUNDS, 31]
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <vector>

#include "runtime/autograd/fork.h"
#include "runtime/autograd/ops.h"
#include "runtime/base/clock.h"
#include "runtime/device/cpu/workers/workers.h"
#include "runtime/device/device.h"
#include "runtime/nn/layers.h"

namespace dtrain::bench {
namespace {

constexpr int kLayers = 4;

/// Two stacks of layers that compute from one input.
struct Branches {
  std::string_view name;
  Tensor input;
  std::array<std::vector<std::shared_ptr<Module>>, 2> stacks;

  Tensor through(std::size_t stack) const {
    Tensor x = input;
    for (const auto& layer : stacks[stack]) x = relu((*layer)(x));
    return x;
  }
  std::vector<Tensor> parameters() const {
    std::vector<Tensor> all;
    for (const auto& stack : stacks) {
      for (const auto& layer : stack) {
        for (const auto& parameter : layer->named_parameters()) all.push_back(parameter.second);
      }
    }
    return all;
  }
};

Branches convolutions(const std::shared_ptr<Device>& device) {
  Generator generator(1);
  Branches branches{"convolutions", Tensor::randn({8, 32, 28, 28}, generator, device), {}};
  for (auto& stack : branches.stacks) {
    for (int i = 0; i < kLayers; ++i)
      stack.push_back(
          std::make_shared<Conv2d>(32, 32, 3, generator, device, Conv2dOptions{{.pad_h = 1, .pad_w = 1}}));
  }
  return branches;
}

Branches products(const std::shared_ptr<Device>& device) {
  Generator generator(2);
  Branches branches{"matrix products", Tensor::randn({128, 512}, generator, device), {}};
  for (auto& stack : branches.stacks) {
    for (int i = 0; i < kLayers; ++i) stack.push_back(std::make_shared<Linear>(512, 512, generator, device));
  }
  return branches;
}

double seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

struct Round {
  double wall = 0, cpu = 0;  ///< seconds
};

Round measure(const Branches& branches, bool forks) {
  for (Tensor& parameter : branches.parameters()) parameter.zero_grad();
  const double cpu = cpu_seconds();
  const TimePoint start = steady_clock().now();
  Tensor joined;
  if (forks) {
    const Fork other = fork([&] { return branches.through(1); });
    const Tensor own = branches.through(0);
    joined = add(own, other.wait());
  } else {
    const Tensor own = branches.through(0);
    joined = add(own, branches.through(1));
  }
  mean(joined).backward();
  return {std::chrono::duration<double>(steady_clock().now() - start).count(), cpu_seconds() - cpu};
}

std::vector<std::vector<float>> gradients_of(const Branches& branches) {
  std::vector<std::vector<float>> all;
  for (const Tensor& parameter : branches.parameters()) all.push_back(parameter.grad().to_vector<float>());
  return all;
}

/// Of as many values as wanted: least, median, most.
std::array<double, 3> extremes(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  return {values.front(), (values[(n - 1) / 2] + values[n / 2]) / 2, values.back()};
}

bool show(const Branches& branches, int rounds) {
  for (int i = 0; i < 2; ++i) measure(branches, i == 1);  // kernels are compiled, memory is there
  std::vector<double> ratios;
  std::array<std::vector<double>, 2> milliseconds, cores;
  std::array<std::vector<std::vector<float>>, 2> gradients;
  for (int round = 0; round < rounds; ++round) {
    std::array<Round, 2> times;
    for (const bool second : {false, true}) {
      const std::size_t forks = (round % 2 == 1) != second ? 1 : 0;
      times[forks] = measure(branches, forks == 1);
      milliseconds[forks].push_back(1e3 * times[forks].wall);
      cores[forks].push_back(times[forks].cpu / times[forks].wall);
      gradients[forks] = gradients_of(branches);
    }
    ratios.push_back(times[0].wall / times[1].wall);
  }
  const auto ratio = extremes(ratios);
  fmt::print("{:<16} {:>12.2f} {:>8.2f} {:>8.2f} ({:.2f} to {:.2f}) {:>12.2f} {:>8.2f}  {}\n", branches.name,
             extremes(milliseconds[0])[1], extremes(milliseconds[1])[1], ratio[1], ratio[0], ratio[2],
             extremes(cores[0])[1], extremes(cores[1])[1],
             gradients[0] == gradients[1] ? "same bits" : "DIFFER");
  return gradients[0] == gradients[1];
}

void show_load() {
  double load[3] = {};
  if (getloadavg(load, 3) == 3)
    fmt::print("load of the machine: {:.2f} {:.2f} {:.2f} on {} cores\n", load[0], load[1], load[2],
               sysconf(_SC_NPROCESSORS_ONLN));
}

int run(int rounds) {
  const auto device = make_device("cpu");
  show_load();
  fmt::print("forwards and backwards, medians of {} rounds\n{:<16} {:>12} {:>8} {:>24} {:>12} {:>8}  {}\n",
             rounds, "", "in turn, ms", "forked", "times as fast", "cores, turn", "forked", "gradients");
  const bool same = show(convolutions(device), rounds);
  return show(products(device), rounds) && same ? 0 : 1;
}

}  // namespace
}  // namespace dtrain::bench

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 31;
  if (rounds < 1) {
    fmt::print(stderr, "fork_speed: expected at least 1 round\n");
    return 2;
  }
  dtrain::cpu::set_worker_count(1);
  return dtrain::bench::run(rounds);
}
