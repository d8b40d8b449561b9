// Prints what a training step pays for looking at its numbers: for the look at gradients and the note of what
// the update wrote (UpdateGuard), as the ratio of steps with and without it, in turns, and for telling other
// ranks which parameters a step used, beside gradients. One thread, its CPU time.
//
//   guard_cost [ROUNDS, 51]
//
// A third optimizer, guarded as little as the first, shows how far two equal ones seem to differ.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <string_view>
#include <vector>

#include "models/vision/network.h"
#include "parallel/sync/used_parameters.h"
#include "runtime/autograd/ops.h"
#include "runtime/optim/guard/update_guard.h"
#include "runtime/optim/sgd.h"

// OpenMP's, where a library brought its runtime along.
extern "C" __attribute__((weak)) void omp_set_num_threads(int threads);

namespace dtrain::bench {
namespace {

struct Job {
  std::string_view model;
  NetworkInput input;
  std::int64_t batch;
  int steps;  ///< a round
  int times;  ///< as many rounds as asked for
};

constexpr Job kJobs[] = {
    {"mlp", {}, 64, 4, 10}, {"lenet", {}, 64, 4, 3}, {"resnet18", {3, 32, 32}, 16, 1, 1}};

/// Of this process' CPU time, which other processes do not change.
double milliseconds(const std::function<void()>& work) {
  const auto now = [] {
    timespec time{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return 1e3 * static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_nsec);
  };
  const double start = now();
  work();
  return now() - start;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  return (values[(n - 1) / 2] + values[n / 2]) / 2;
}

enum Way { kPlain, kGuarded, kPlainAgain, kWays };

/// A network that learns one batch, by three optimizers on the same parameters: one is guarded.
class Trial {
 public:
  explicit Trial(const Job& job)
      : network_(make_network(job.model, job.input, generator_, device_)),
        images_(Tensor::rand({job.batch, job.input.channels, job.input.height, job.input.width}, generator_,
                             device_)),
        labels_(Tensor::zeros({job.batch}, device_, DType::i64)),
        plain_(network_->named_parameters(), {.lr = 1e-4, .momentum = 0.9}),
        guarded_(network_->named_parameters(), {.lr = 1e-4, .momentum = 0.9}),
        again_(network_->named_parameters(), {.lr = 1e-4, .momentum = 0.9}),
        guard_(device_) {
    guard_.attach(guarded_);
  }

  void step(Way way) {
    const bool guarded = way == kGuarded;
    Optimizer& optimizer = guarded ? guarded_ : way == kPlain ? plain_ : again_;
    optimizer.zero_grad();
    cross_entropy((*network_)(images_), labels_).backward();
    if (guarded && guard_.inspects_first()) guard_.inspect(optimizer.gradients());
    optimizer.step();
    if (guarded && !guard_.inspects_first() && guard_.corrupted_any()) guard_.inspect(optimizer.gradients());
  }
  /// What a step of several ranks adds: a number a parameter is written, and read again.
  void agree() {
    const std::size_t count = plain_.parameters().size();
    const Tensor slot = Tensor::empty({static_cast<std::int64_t>(count)}, device_);
    write_used(device_->kernels(), slot.view(), UsedParameters(count, true));
    read_used(device_, slot.view());
  }
  bool is_finite() const { return !guard_.found_any() && !guard_.corrupted_any(); }

 private:
  std::shared_ptr<Device> device_ = make_device("cpu");
  Generator generator_{1};
  std::unique_ptr<Module> network_;
  Tensor images_, labels_;
  Sgd plain_, guarded_, again_;
  UpdateGuard guard_;
};

bool show(const Job& job, int rounds) {
  Trial trial(job);
  constexpr Way kAll[] = {kPlain, kGuarded, kPlainAgain};
  for (const Way way : kAll) trial.step(way);  // memory is there
  std::vector<double> ratios, control, steps;
  for (int round = 0; round < rounds * job.times; ++round) {
    std::array<double, kWays> times{};
    for (int turn = 0; turn < kWays; ++turn) {
      const Way way = kAll[(round + turn) % kWays];
      times[way] = milliseconds([&] {
        for (int i = 0; i < job.steps; ++i) trial.step(way);
      });
    }
    ratios.push_back(times[kGuarded] / times[kPlain]);
    control.push_back(times[kPlainAgain] / times[kPlain]);
    steps.push_back(times[kPlain] / job.steps);
  }
  constexpr int kAgreements = 1000;
  const double agreement = milliseconds([&] {
    for (int i = 0; i < kAgreements; ++i) trial.agree();
  });
  const double step = median(steps);
  std::sort(ratios.begin(), ratios.end());
  fmt::print("{:<10} {:>6} {:>12.3f} {:>10.4f} ({:.3f} to {:.3f}) {:>10.4f} {:>16.2f} {:>10.3f}\n", job.model,
             job.batch, step, median(ratios), ratios[ratios.size() / 4], ratios[ratios.size() * 3 / 4],
             median(control), 1e3 * agreement / kAgreements, 100 * agreement / kAgreements / step);
  return trial.is_finite();
}

int run(int rounds) {
  double load[3] = {};
  if (getloadavg(load, 3) == 3)
    fmt::print("load of the machine: {:.2f} {:.2f} {:.2f} on {} cores; {} rounds\n", load[0], load[1],
               load[2], sysconf(_SC_NPROCESSORS_ONLN), rounds);
  fmt::print("{:<10} {:>6} {:>12} {:>10} {:<16} {:>10} {:>16} {:>10}\n", "model", "batch", "a step, ms",
             "guarded", "(the middle half)", "plain", "agreement, us", "% of it");
  bool finite = true;
  for (const Job& job : kJobs) finite = show(job, rounds) && finite;
  if (!finite) fmt::print(stderr, "guard_cost: expected finite numbers, got others\n");
  return finite ? 0 : 1;
}

}  // namespace
}  // namespace dtrain::bench

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 51;
  if (rounds < 4) {
    fmt::print(stderr, "guard_cost: expected at least 4 rounds\n");
    return 2;
  }
  if (omp_set_num_threads != nullptr) omp_set_num_threads(1);
  return dtrain::bench::run(rounds);
}
