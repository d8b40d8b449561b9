// The time of a step's parts on each rank, from the traces in a run's folder. Internal to runtime/metrics.
#pragma once

#include <filesystem>
#include <string>

#include "runtime/metrics/report/metrics_reader.h"

namespace dtrain {

/// Adds the rank that trace text (Chrome's format, trace.h) is of to `times`: the mean of its steps. Text
/// that is no such trace, or has other parts than those that are there, adds nothing.
void add_trace(const std::string& json_text, PhaseTimes& times);

/// Of trace-rank0.json, … in `run`; empty where there are none. At most 64 ranks, of files that are not
/// larger than a page's making can wait for. Throws SystemError.
PhaseTimes trace_phases(const std::filesystem::path& run);

}  // namespace dtrain
