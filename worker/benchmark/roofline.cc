#include "worker/benchmark/roofline.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "runtime/base/error.h"

namespace dtrain {
namespace {

constexpr double kShortestKernel = 1e-6;  // a graph's node; alone a little more
constexpr double kLaunch = 2e-6;          // of the host's time

double rate_of(Arithmetic arithmetic, const GpuPeaks& gpu) {
  switch (arithmetic) {
    case Arithmetic::f64:
      return gpu.f64;
    case Arithmetic::tf32:
      return gpu.tf32;
    case Arithmetic::bf16:
    case Arithmetic::f16:
      return gpu.half;
    case Arithmetic::none:
    case Arithmetic::f32:
      break;
  }
  return gpu.f32;
}

// "apply_kernel<T>" and "(row_kernel<T, Op>)" are launches of apply_kernel and of row_kernel.
std::string plain(std::string_view name) {
  if (name.starts_with('(')) name.remove_prefix(1);
  return std::string(name.substr(0, name.find_first_of("<)")));
}

void add(WorkRow& row, const DeviceWork& work, double seconds) {
  row.calls += 1;
  row.read_bytes += work.read_bytes;
  row.written_bytes += work.written_bytes;
  row.bus_bytes += work.bus_bytes;
  row.operations += work.operations;
  row.seconds += seconds;
}

}  // namespace

std::vector<DeviceWork> at_batch(const std::vector<DeviceWork>& of_few, std::int64_t few,
                                 const std::vector<DeviceWork>& of_many, std::int64_t many,
                                 std::int64_t wanted) {
  const bool same = std::equal(of_few.begin(), of_few.end(), of_many.begin(), of_many.end(),
                               [](const auto& a, const auto& b) { return a.name == b.name; });
  if (!same || few >= many) {
    throw UsageError(
        fmt::format("forecast: expected steps of the same calls, got {} with {} samples and {} "
                    "with {}; take another --batch-size",
                    of_few.size(), few, of_many.size(), many));
  }
  const double share = static_cast<double>(wanted - few) / static_cast<double>(many - few);
  const auto at = [share](double a, double b) { return std::max(a + (b - a) * share, 0.0); };
  std::vector<DeviceWork> result = of_few;
  for (std::size_t i = 0; i < result.size(); ++i) {
    const DeviceWork& larger = of_many[i];
    DeviceWork& work = result[i];
    work.read_bytes = at(work.read_bytes, larger.read_bytes);
    work.written_bytes = at(work.written_bytes, larger.written_bytes);
    work.bus_bytes = at(work.bus_bytes, larger.bus_bytes);
    work.operations = at(work.operations, larger.operations);
  }
  return result;
}

double shortest_seconds(const DeviceWork& work, const GpuPeaks& gpu) {
  return std::max({kShortestKernel, (work.read_bytes + work.written_bytes) / gpu.memory,
                   work.bus_bytes / gpu.bus, work.operations / rate_of(work.arithmetic, gpu)});
}

StepForecast forecast(const std::vector<DeviceWork>& step, const GpuPeaks& gpu) {
  std::map<std::string, WorkRow> rows;
  StepForecast result;
  for (const DeviceWork& work : step) {
    const double seconds = shortest_seconds(work, gpu);
    add(rows[plain(work.name)], work, seconds);
    add(result.total, work, seconds);
    result.host_seconds += kLaunch;
  }
  for (auto& [name, row] : rows) {
    row.name = name;
    result.rows.push_back(std::move(row));
  }
  std::stable_sort(result.rows.begin(), result.rows.end(),
                   [](const WorkRow& a, const WorkRow& b) { return a.seconds > b.seconds; });
  return result;
}

std::string forecast_table(const StepForecast& forecast, const GpuPeaks& gpu, std::int64_t samples) {
  std::string text = fmt::format(
      "# counted on an emulated GPU, predicted for {} from its data sheet: a lower bound, not measured\n",
      gpu.name);
  text += fmt::format("{:<38} {:>6} {:>10} {:>10} {:>9} {:>9} {:>7}\n", "kernel", "calls", "MB read",
                      "MB written", "GFLOP", "ms", "share");
  const auto line = [&](const WorkRow& row, std::string_view name) {
    const double bus = row.bus_bytes;
    text += fmt::format("{:<38} {:>6.0f} {:>10.3f} {:>10.3f} {:>9.3f} {:>9.4f} {:>6.1f}%{}\n", name,
                        row.calls, row.read_bytes * 1e-6, row.written_bytes * 1e-6, row.operations * 1e-9,
                        row.seconds * 1e3, 100 * row.seconds / forecast.total.seconds,
                        bus > 0 ? fmt::format("  ({:.3f} MB over the bus)", bus * 1e-6) : "");
  };
  for (const WorkRow& row : forecast.rows) line(row, row.name);
  line(forecast.total, "step");
  return text + fmt::format(
                    "predicted: {:.3f} ms unrecorded (its launches {:.3f} ms), {:.3f} ms recorded as a "
                    "graph; at most {:.0f} samples/s\n",
                    forecast.as_it_comes() * 1e3, forecast.host_seconds * 1e3, forecast.recorded() * 1e3,
                    static_cast<double>(samples) / forecast.recorded());
}

std::string forecast_json(const StepForecast& forecast, const GpuPeaks& gpu, std::int64_t samples) {
  std::string text;
  const auto line = [&](const WorkRow& row) {
    return nlohmann::ordered_json{{"kernel", row.name},
                                  {"calls", row.calls},
                                  {"read_bytes", row.read_bytes},
                                  {"written_bytes", row.written_bytes},
                                  {"bus_bytes", row.bus_bytes},
                                  {"operations", row.operations},
                                  {"predicted_ms", row.seconds * 1e3}};
  };
  for (const WorkRow& row : forecast.rows) text += line(row).dump() + "\n";
  nlohmann::ordered_json step = line(forecast.total);
  step["kernel"] = "step";
  step["predicted_for"] = gpu.name;
  step["samples"] = samples;
  step["predicted_as_it_comes_ms"] = forecast.as_it_comes() * 1e3;
  step["predicted_recorded_ms"] = forecast.recorded() * 1e3;
  step["emulated"] = true;
  return text + step.dump() + "\n";
}

}  // namespace dtrain
