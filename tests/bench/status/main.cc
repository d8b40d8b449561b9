// Nanoseconds that a worker takes to say that a step is done, with a reader and without: the median of
// rounds.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "runtime/base/files/worker_status.h"

namespace {

using dtrain::StatusPage;
using dtrain::StatusReporter;
using dtrain::StatusSlot;
using dtrain::WorkerStatus;

constexpr int kRounds = 21, kSteps = 200'000;

double nanoseconds(StatusReporter& reporter) {
  const auto begin = std::chrono::steady_clock::now();
  for (int step = 0; step < kSteps; ++step) {
    reporter.update([step](WorkerStatus& status) {
      status.step = step;
      status.loss = 1.0 / (step + 1);
    });
  }
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begin).count() / kSteps;
}

double median(StatusReporter& reporter) {
  std::vector<double> rounds;
  for (int round = 0; round < kRounds; ++round) rounds.push_back(nanoseconds(reporter));
  std::nth_element(rounds.begin(), rounds.begin() + kRounds / 2, rounds.end());
  return rounds[kRounds / 2];
}

}  // namespace

int main() {
  const StatusPage page(1);
  StatusReporter reporter(StatusSlot::from({{dtrain::kStatusVariable, StatusPage::variable(page.fd(), 0)}}));
  const double alone = median(reporter);
  std::atomic<bool> end{false};
  std::jthread reading([&] {
    while (!end) {
      if (const auto read = page.slot(0).read(); read && read->step < 0) fmt::print("never\n");
    }
  });
  const double read = median(reporter);
  end = true;
  fmt::print("{:.1f} {:.1f}\n", alone, read);
}
