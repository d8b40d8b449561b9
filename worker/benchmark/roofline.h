// From what an emulated GPU has done in a step to what a named GPU would need for it at the least: no kernel
// is faster than its memory traffic, its arithmetic, or a kernel at all. A prediction, never a measurement.
#pragma once

#include <string>
#include <vector>

#include "runtime/device/device_work.h"
#include "training/log/gpu_peaks.h"

namespace dtrain {

/// Each call of a step with a batch of `wanted`, from steps with `few` and with `many` samples: bytes and
/// operations grow evenly with the batch. Throws UsageError where the two steps are not the same calls.
std::vector<DeviceWork> at_batch(const std::vector<DeviceWork>& of_few, std::int64_t few,
                                 const std::vector<DeviceWork>& of_many, std::int64_t many,
                                 std::int64_t wanted);

/// The calls of one name in a step.
struct WorkRow {
  std::string name;
  double calls = 0, read_bytes = 0, written_bytes = 0, bus_bytes = 0, operations = 0;
  double seconds = 0;  ///< predicted
};

struct StepForecast {
  std::vector<WorkRow> rows;  ///< the longest first
  WorkRow total;              ///< its seconds: of the GPU, one call after the other
  double host_seconds = 0;    ///< to launch each call
  /// Whichever is longer: the host runs beside the GPU.
  double as_it_comes() const { return total.seconds > host_seconds ? total.seconds : host_seconds; }
  /// As one graph, which the host launches at once.
  double recorded() const { return total.seconds; }
};

/// Seconds of one call: the longest of its traffic, its arithmetic and kShortestKernel.
double shortest_seconds(const DeviceWork& work, const GpuPeaks& gpu);
StepForecast forecast(const std::vector<DeviceWork>& step, const GpuPeaks& gpu);

/// The table, headed by what it is and is not; `samples` of the step.
std::string forecast_table(const StepForecast& forecast, const GpuPeaks& gpu, std::int64_t samples);
/// The same, one JSON object a line; the last is the step's.
std::string forecast_json(const StepForecast& forecast, const GpuPeaks& gpu, std::int64_t samples);

}  // namespace dtrain
