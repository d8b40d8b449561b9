#include "tests/bench/server/pace.h"

#include <algorithm>
#include <exception>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "parallel/server/key_value_store.h"
#include "parallel/server/parameter_server.h"
#include "runtime/base/error.h"

namespace dtrain::bench {
namespace {

constexpr std::chrono::hours kLongestSlowness{1};

Deadline patience() { return Deadline::after(std::chrono::seconds(60)); }

class Worker {
 public:
  Worker(int number, KeyValueStore& store, const PaceSetting& setting, const Slowness& slowness)
      : number_(number), store_(store), setting_(setting), slowness_(slowness) {}

  /// Sleeps, pushes and pulls until `end`; synchronous workers make as many steps as worker 0 can.
  void run(TimePoint start) {
    const auto device = make_device("cpu");
    const Tensor weights = Tensor::zeros({setting_.parameters}, device);
    const Tensor gradient = Tensor::ones({setting_.parameters}, device);
    store_.init("weights", weights, patience());
    const TimePoint end = start + setting_.length;
    std::this_thread::sleep_until(start);
    while (true) {
      const TimePoint now = steady_clock().now();
      if (now >= end) break;
      const double factor = slowness_(number_, now - start);
      std::this_thread::sleep_for(
          std::chrono::duration_cast<std::chrono::nanoseconds>(setting_.step * factor));
      store_.push({{"weights", gradient}}, 1e-3, patience());
      if (steady_clock().now() < end) ++counted_;
      // Who has no more time leaves the others at once; a synchronous update would wait for it.
      if (steady_clock().now() >= end) break;
      try {
        store_.pull({{"weights", weights}}, patience());
      } catch (const UsageError&) {
        break;  // another worker's time was up in this step
      }
    }
    store_.disconnect(patience());
  }
  std::int64_t counted() const { return counted_; }

 private:
  int number_;
  KeyValueStore& store_;
  const PaceSetting& setting_;
  const Slowness& slowness_;
  std::int64_t counted_ = 0;
};

}  // namespace

Slowness one_is_slow(int slow, double factor) {
  return [=](int worker, std::chrono::nanoseconds) { return worker == slow ? factor : 1.0; };
}

Slowness slowness_that_moves(int workers, double factor, std::chrono::milliseconds least,
                             std::chrono::milliseconds most, std::uint64_t seed) {
  struct Turn {
    std::chrono::nanoseconds end;
    int worker;
  };
  auto turns = std::make_shared<std::vector<Turn>>();
  std::mt19937_64 random(seed);
  std::uniform_int_distribution<std::int64_t> length(least.count(), most.count());
  std::uniform_int_distribution<int> step(1, std::max(workers - 1, 1));
  int worker = 0;
  for (std::chrono::nanoseconds at{0}; at < kLongestSlowness;) {
    at += std::chrono::milliseconds(length(random));
    turns->push_back({at, worker});
    worker = (worker + step(random)) % workers;
  }
  return [turns, factor](int of, std::chrono::nanoseconds elapsed) {
    const auto turn = std::upper_bound(turns->begin(), turns->end(), elapsed,
                                       [](std::chrono::nanoseconds at, const Turn& t) { return at < t.end; });
    return turn != turns->end() && turn->worker == of ? factor : 1.0;
  };
}

Pace measure_pace(const PaceSetting& setting, const Slowness& slowness) {
  const int workers = setting.rules.workers;
  ParameterServer server(setting.rules,
                         make_updater([](const std::string&, const Tensor& pushed, Tensor& value,
                                         double rate) { value.add_in_place(pushed, -rate); }),
                         {});
  std::thread serving([&] { server.run(std::chrono::seconds(60)); });
  std::vector<std::unique_ptr<KeyValueStore>> stores;
  for (int number = 0; number < workers; ++number)
    stores.push_back(std::make_unique<KeyValueStore>(std::vector{server.address()},
                                                     KeyValueStoreOptions{.worker = number}, patience()));
  std::vector<Worker> all;
  for (int number = 0; number < workers; ++number)
    all.emplace_back(number, *stores[static_cast<std::size_t>(number)], setting, slowness);
  const TimePoint start = steady_clock().now() + std::chrono::milliseconds(50);
  std::vector<std::thread> threads;
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(workers));
  for (int number = 0; number < workers; ++number) {
    threads.emplace_back([&, number] {
      try {
        all[static_cast<std::size_t>(number)].run(start);
      } catch (...) {
        errors[static_cast<std::size_t>(number)] = std::current_exception();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  stores.clear();
  serving.join();
  for (const auto& error : errors) {
    if (error) std::rethrow_exception(error);
  }
  Pace pace;
  for (const Worker& worker : all) pace.updates_per_second += static_cast<double>(worker.counted());
  pace.updates_per_second /= std::chrono::duration<double>(setting.length).count();
  pace.delays = server.delays();
  return pace;
}

}  // namespace dtrain::bench
