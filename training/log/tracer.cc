#include "training/log/tracer.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "cluster/detect/detect.h"
#include "runtime/base/files/durable_file.h"
#include "runtime/metrics/trace.h"

namespace dtrain {
namespace {

namespace fs = std::filesystem;

// About 30 MB of memory, and as much of file, which is what viewers take.
constexpr std::size_t kMostSpans = std::size_t{1} << 18;
// The first steps compile kernels and fill caches.
constexpr std::int64_t kWarmUpSteps = 2, kDefaultSteps = 5;

std::int64_t unix_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace

fs::path trace_file_of_rank(const fs::path& file, int rank) {
  return file.parent_path() /
         fmt::format("{}-rank{}{}", file.stem().string(), rank, file.extension().string());
}

Tracer::Tracer(std::optional<TraceRequest> request, int rank, WorkerLog& log)
    : request_(std::move(request)), rank_(rank), log_(&log), spans_(kMostSpans) {
  spans_.set_recording(false);
}

Tracer::~Tracer() {
  if (spans_.recording()) write();
  if (file_.empty() || rank_ != 0) return;
  log_->write(LogLevel::warning,
              fmt::format("--trace: no file was written: training ended in step {}, steps {} to {} were to "
                          "be traced; choose others with --trace-steps A:B",
                          current_, first_, last_));
}

void Tracer::set_listener(SpanListener& listener) noexcept { spans_.set_listener(&listener); }

void Tracer::begin_run(const fs::path& run_dir, std::int64_t steps_done, std::int64_t zero_unix_ns) {
  if (!request_) return;
  zero_unix_ns_ = zero_unix_ns;
  current_ = steps_done;
  first_ = request_->first_step.value_or(steps_done + kWarmUpSteps + 1);
  last_ = request_->last_step.value_or(steps_done + kWarmUpSteps + kDefaultSteps);
  if (request_->file) {
    const fs::path file = fs::absolute(*request_->file);
    check_writable(file.parent_path(), 0);
    file_ = trace_file_of_rank(file, rank_);
  } else if (fs::is_directory(run_dir)) {
    file_ = trace_file_of_rank(run_dir / "trace.json", rank_);
  } else {
    log_->write(LogLevel::warning,
                fmt::format("--trace auto: {} is not on this machine, so there is no trace "
                            "of this rank; name a file with --trace FILE",
                            run_dir.string()));
  }
}

void Tracer::begin_step(std::int64_t step) {
  current_ = step;
  if (file_.empty()) return;
  if (step > last_ && spans_.recording()) return write();
  if (step >= first_ && step <= last_) spans_.set_recording(true);
}

void Tracer::write() noexcept {
  spans_.set_recording(false);
  const fs::path file = std::exchange(file_, {});
  try {
    Trace trace;
    trace.rank = rank_;
    trace.host = this_machine().hostname;
    trace.process = ::getpid();
    trace.spans = spans_.take();
    trace.threads = spans_.threads();
    trace.zero = steady_clock().now() - std::chrono::nanoseconds(unix_ns() - zero_unix_ns_);
    trace.zero_unix_ns = zero_unix_ns_;
    trace.dropped = spans_.dropped();
    const std::string text =
        fmt::format("trace of steps {} to {}: {}, {} spans{}; open it at https://ui.perfetto.dev", first_,
                    std::min(last_, current_), file.string(), trace.spans.size(),
                    trace.dropped == 0 ? "" : fmt::format(" ({} more did not fit)", trace.dropped));
    replace_file(file, format_trace(std::move(trace)));
    rank_ == 0 ? log_->write(LogLevel::info, text) : log_->note(LogLevel::info, text);
  } catch (const std::exception& error) {
    log_->write(LogLevel::warning, fmt::format("--trace: no file was written: {}", error.what()));
  }
}

}  // namespace dtrain
