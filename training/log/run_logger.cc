#include "training/log/run_logger.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "runtime/base/files/durable_file.h"
#include "runtime/metrics/memory.h"

namespace dtrain {
namespace {

constexpr Duration kSyncPatience = std::chrono::seconds(10);

std::optional<std::int64_t> staleness_of(const StepReport& report) {
  return report.delay ? std::optional(report.delay->behind) : std::nullopt;
}

std::optional<std::int64_t> ahead_of(const StepReport& report) {
  return report.delay ? std::optional(report.delay->ahead) : std::nullopt;
}

}  // namespace

RunLogger::RunLogger(const RunLoggerContext& context)
    : context_(context),
      scribe_(context.log, {.permit = context.permit}),
      spikes_(context.recipe.loss_spike),
      started_(steady_clock().now()) {}

void RunLogger::record_by(std::unique_ptr<RunRecorder> recorder) {
  scribe_.drain(Deadline::never());
  recorder_ = std::move(recorder);
  forget();
}

void RunLogger::open_logs(const std::filesystem::path& logs, const std::string& line) {
  if (!std::filesystem::is_directory(logs)) return;
  logs_ = logs;
  context_.log.attach(logs / fmt::format("rank-{}.log", context_.rank));
  if (context_.recipe.log_samples)
    samples_log_.open(logs / fmt::format("samples-{}.jsonl", context_.rank), std::ios::app);
  context_.log.note(LogLevel::info, line);
}

void RunLogger::begin(const RunPosition& at) {
  rate_since_ = epoch_since_ = steady_clock().now();
  epoch_whole_ = at.position == 0;
  context_.clock = StepClock();
}

void RunLogger::step(const StepReport& report, const RunPosition& at) {
  const StepNote& note = report.note;
  last_loss_ = report.loss;
  if (const auto median = spikes_.judge(report.loss)) dump_batch(note.step, report.loss, median, at);
  rate_samples_ += note.samples;
  samples_done_ += note.samples;
  const TimePoint now = steady_clock().now();
  if (note.step == 1 && at.resumed_from == 0) note_first_step();
  const bool record = note.step % context_.recipe.log_every == 0 || note.step >= at.total_steps;
  if (record || samples_per_second_ == 0) {
    samples_per_second_ =
        static_cast<double>(rate_samples_) / std::chrono::duration<double>(now - rate_since_).count();
  }
  if (recorder_) {
    const SpanScope span(context_.spans, "metrics", "phase");
    recorder_->show(scribe_, {.step = note.step,
                              .total_steps = at.total_steps,
                              .epoch = note.epoch,
                              .epochs = context_.recipe.epochs == INT64_MAX ? 0 : context_.recipe.epochs,
                              .loss = report.loss,
                              .samples_per_second = samples_per_second_,
                              .time_left = std::nullopt,
                              .resident_bytes = resident_bytes()});
    if (record) {
      recorder_->step(scribe_, {.step = note.step,
                                .epoch = note.epoch,
                                .loss = report.loss,
                                .lr = note.lr,
                                .samples_per_second = samples_per_second_,
                                .loss_scale = report.loss_scale,
                                .skipped_steps = report.skipped,
                                .memory = memory_use(),
                                .staleness = staleness_of(report),
                                .ahead = ahead_of(report)});
    }
  }
  if (record) {
    rate_since_ = now;
    rate_samples_ = 0;
  }
  if (note.ends_epoch) end_epoch(note, now);
  context_.clock.lap(Phase::other);
  context_.clock.finish_step();
}

void RunLogger::end_epoch(const StepNote& note, TimePoint now) {
  if (recorder_) {
    recorder_->epoch(scribe_, {.epoch = note.epoch,
                               .step = note.step,
                               .seconds = std::chrono::duration<double>(now - epoch_since_).count(),
                               .whole = epoch_whole_});
  }
  epoch_since_ = now;
  epoch_whole_ = true;
}

void RunLogger::phases(std::int64_t step, const PhaseComparison& compared) {
  // However many ranks there are, the lines of a run stay short enough to be read in a moment.
  constexpr std::size_t kRanksEachTime = 64;
  const std::size_t ranks = compared.milliseconds.empty() ? 0 : compared.milliseconds.front().second.size();
  const auto every =
      static_cast<std::int64_t>(StragglerDetector::kEvery * std::max<std::size_t>(ranks / kRanksEachTime, 1));
  if (recorder_ && step % every < StragglerDetector::kEvery)
    recorder_->phases(
        scribe_, {.step = step, .steps = StragglerDetector::kEvery, .milliseconds = compared.milliseconds});
}

// At the end of an epoch and in the middle of one alike: the epoch the last step belonged to.
void RunLogger::evaluation(const Evaluation& evaluation, const RunPosition& at) {
  evaluation_ = evaluation;
  if (recorder_) {
    const std::int64_t epoch = at.position == 0 && at.epoch > 0 ? at.epoch - 1 : at.epoch;
    recorder_->evaluation(scribe_,
                          {.epoch = epoch,
                           .loss = evaluation.loss,
                           .metrics = evaluation.metrics,
                           .samples = evaluation.samples},
                          at.step);
  }
  rate_since_ = epoch_since_ = steady_clock().now();
  rate_samples_ = 0;
  context_.clock.skip();
}

void RunLogger::samples(std::span<const std::int64_t> indices, const RunPosition& at) {
  spikes_.take(at.step + 1, indices);
  if (!samples_log_.is_open()) return;
  context_.permit.check("the log of samples");
  samples_log_ << fmt::format("{{\"start\":{},\"step\":{},\"epoch\":{},\"world\":{},\"indices\":[{}]}}\n",
                              at.start, at.step + 1, at.epoch, context_.world_size, fmt::join(indices, ","))
               << std::flush;
}

void RunLogger::bad_loss(std::int64_t step, double loss, const RunPosition& at) {
  dump_batch(step, loss, std::nullopt, at);
}

void RunLogger::dump_batch(std::int64_t step, double loss, std::optional<double> median,
                           const RunPosition& at) {
  const std::string name = fmt::format("batch-step-{}-rank-", step);
  if (median && context_.rank == 0) {
    context_.log.write(LogLevel::warning,
                       fmt::format("step {}: the loss is {:.4g}, {:.1f} times the median of the steps before "
                                   "({:.4g}); the samples of the batch are in logs/{}*.json",
                                   step, loss, loss / *median, *median, name));
  }
  const std::vector<std::int64_t> samples = spikes_.samples_of(step);
  if (logs_.empty() || samples.empty()) return;
  nlohmann::json batch = {{"start", at.start},
                          {"step", step},
                          {"epoch", at.epoch},
                          {"rank", context_.rank},
                          {"loss", loss},  // null where it is not finite
                          {"median_loss", median ? nlohmann::json(*median) : nlohmann::json()},
                          {"indices", samples}};
  if (train_) {
    batch["source"] = train_->name();
    for (const std::int64_t sample : samples) batch["rows"].push_back(train_->place_of(sample));
  }
  scribe_.post([path = logs_ / fmt::format("{}{}.json", name, context_.rank), text = batch.dump() + "\n"] {
    replace_file(path, text);
  });
}

void RunLogger::forget() {
  spikes_.forget();
  rate_samples_ = 0;
  rate_since_ = steady_clock().now();
}

void RunLogger::sync() {
  if (!recorder_) return;
  scribe_.post([this] { recorder_->sync(); });
  if (!scribe_.drain(Deadline::after(kSyncPatience))) {
    context_.log.write(LogLevel::warning,
                       "a checkpoint is written before the metrics up to it are on the disk, which is slow");
  }
}

void RunLogger::message(const std::string& text) {
  if (recorder_) scribe_.post([this, text] { recorder_->message(text); });
}

void RunLogger::finish(const std::string& status, const RunPosition& at) {
  if (recorder_) scribe_.post([this, summary = summarize(status, at)] { recorder_->finish(summary); });
}

MemoryUse RunLogger::memory_use() const {
  return {.allocated_bytes = static_cast<std::int64_t>(context_.device.allocated_bytes()),
          .peak_allocated_bytes = static_cast<std::int64_t>(context_.device.peak_allocated_bytes()),
          .resident_bytes = resident_bytes(),
          .peak_resident_bytes = peak_resident_bytes()};
}

RunSummary RunLogger::summarize(const std::string& status, const RunPosition& at) const {
  const StepClock& clock = context_.clock;
  RunSummary summary;
  summary.status = status;
  summary.device = context_.device.name();
  summary.emulated = context_.device.is_emulated();
  summary.start = at.start;
  summary.steps = at.step;
  summary.epochs = at.epoch;
  summary.world_size = context_.world_size;
  summary.loss = last_loss_;
  summary.seconds = std::chrono::duration<double>(steady_clock().now() - started_).count();
  summary.samples_per_second = static_cast<double>(samples_done_) /
                               std::max(std::chrono::duration<double>(clock.total()).count(), 1e-9);
  summary.evaluation = evaluation_;
  summary.seconds_to_first_step = seconds_to_first_step_;
  summary.resumed_from_step = at.resumed_from;
  summary.memory = memory_use();
  summary.delays = delays_;
  for (std::size_t i = 0; i <= static_cast<std::size_t>(Phase::other); ++i) {
    const auto phase = static_cast<Phase>(i);
    const double steps = static_cast<double>(std::max<std::int64_t>(clock.steps(), 1));
    summary.phase_milliseconds[std::string(name_of(phase))] =
        1e3 * std::chrono::duration<double>(clock.spent(phase)).count() / steps;
  }
  return summary;
}

// Since the launcher (or this process) started.
void RunLogger::note_first_step() {
  const std::string* launch = find_variable(context_.environment, "DTRAIN_LAUNCH_TIME_NS");
  if (launch == nullptr) return;
  const auto nanoseconds = parse_integer(*launch);
  if (!nanoseconds) return;
  const auto now = std::chrono::duration_cast<std::chrono::nanoseconds>(
                       std::chrono::system_clock::now().time_since_epoch())
                       .count();
  seconds_to_first_step_ = static_cast<double>(now - *nanoseconds) * 1e-9;
}

}  // namespace dtrain
