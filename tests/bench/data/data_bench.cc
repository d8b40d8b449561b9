// What data costs: opening the real set with a cold, warm or no cache, an epoch's order, and the loader
// alone. Needs the Debian package dataset-fashion-mnist.
#include <benchmark/benchmark.h>

#include <filesystem>

#include "runtime/data/loader.h"
#include "runtime/data/sampler.h"
#include "runtime/data/sources/open_source.h"
#include "tests/unit/data/fake_device.h"

namespace dtrain {
namespace {

const std::filesystem::path kCache = std::filesystem::temp_directory_path() / "dtrain-data-bench";

std::shared_ptr<const Source> open(const std::string& cache) {
  return open_source("fashion-mnist", Split::train, {"", cache, nullptr});
}

void open_cold(benchmark::State& state) {
  for (auto _ : state) {
    state.PauseTiming();
    std::filesystem::remove_all(kCache);
    state.ResumeTiming();
    benchmark::DoNotOptimize(open(kCache.string()));
  }
}

void open_warm(benchmark::State& state) {
  open(kCache.string());
  for (auto _ : state) benchmark::DoNotOptimize(open(kCache.string()));
}

void open_without_cache(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(open("off"));
}

void epoch_order(benchmark::State& state) {
  const DistributedSampler sampler({60000, 2, 0});
  std::int64_t epoch = 0;
  for (auto _ : state) benchmark::DoNotOptimize(sampler.order(epoch++));
}

void loader_alone(benchmark::State& state) {
  const auto source = open(kCache.string());
  const std::int64_t batch_size = state.range(1);
  Loader loader(source, std::make_shared<test::PinnedOnlyDevice>(),
                {.batch_size = batch_size, .threads = static_cast<int>(state.range(0))});
  const auto order = DistributedSampler({60000, 2, 0}).order(0);
  std::int64_t images = 0;
  for (auto _ : state) {
    loader.start(order, 0);
    while (const auto batch = loader.next(Deadline::never())) {
      benchmark::DoNotOptimize((*batch)["image"].data);
      images += batch->size();
    }
  }
  state.counters["images/s"] = benchmark::Counter(static_cast<double>(images), benchmark::Counter::kIsRate);
}

BENCHMARK(open_cold)->Unit(benchmark::kMillisecond)->UseRealTime()->Iterations(3);
BENCHMARK(open_warm)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(open_without_cache)->Unit(benchmark::kMillisecond)->UseRealTime()->Iterations(3);
BENCHMARK(epoch_order)->Unit(benchmark::kMillisecond);
BENCHMARK(loader_alone)
    ->ArgNames({"threads", "batch"})
    ->ArgsProduct({{0, 1, 2}, {1, 32, 128, 1024}})
    ->Unit(benchmark::kMillisecond)
    ->MeasureProcessCPUTime()
    ->UseRealTime();

}  // namespace
}  // namespace dtrain
