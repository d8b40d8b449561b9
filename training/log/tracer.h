// The trace of one worker (--trace): records the spans of a few steps and writes this rank's file when they
// are over, or when training ends before, however it ends.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "runtime/base/spans.h"
#include "training/log/worker_log.h"
#include "training/options/train_config.h"

namespace dtrain {

/// The training thread calls; spans come from any thread. To be declared before all that records spans, so
/// that it ends after it.
class Tracer {
 public:
  /// `log` is borrowed. Nothing is recorded before begin_step() of the first step that is asked for.
  Tracer(std::optional<TraceRequest> request, int rank, WorkerLog& log);
  /// Writes what was recorded and not yet written. A file that cannot be written is a warning in the log.
  ~Tracer();
  Tracer(const Tracer&) = delete;
  Tracer& operator=(const Tracer&) = delete;

  /// Whether a trace was asked for.
  bool wanted() const noexcept { return request_.has_value(); }
  /// From now on `listener`, borrowed, hears of the spans of every step. Before spans() is asked.
  void set_listener(SpanListener& listener) noexcept;
  /// Where spans go; null when they are not wanted.
  SpanRecorder* spans() noexcept { return wanted() || spans_.listener() != nullptr ? &spans_ : nullptr; }

  /// Tells where the run is: its folder, which may not exist on this machine (then --trace auto warns and
  /// does nothing), its finished steps, and the moment that is 0 in every rank's file, nanoseconds since
  /// 1970. Throws UsageError or SystemError when the file's folder cannot be written.
  void begin_run(const std::filesystem::path& run_dir, std::int64_t steps_done, std::int64_t zero_unix_ns);
  /// Step `step` (from 1) begins: recording starts before the first one asked for, and ends, with the file,
  /// before the one after the last.
  void begin_step(std::int64_t step);

 private:
  void write() noexcept;

  std::optional<TraceRequest> request_;
  int rank_;
  WorkerLog* log_;
  SpanRecorder spans_;
  std::filesystem::path file_;  ///< empty: no file is to be written (any more)
  std::int64_t first_ = 0, last_ = 0, current_ = 0;
  std::int64_t zero_unix_ns_ = 0;
};

/// `file` with "-rank<R>" before its ending: "t.json" → "t-rank0.json".
std::filesystem::path trace_file_of_rank(const std::filesystem::path& file, int rank);

}  // namespace dtrain
