#include "training/log/run_logger.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "runtime/base/error.h"
#include "runtime/base/files/durable_file.h"
#include "runtime/base/options.h"
#include "runtime/data/formats/text.h"
#include "runtime/metrics/memory.h"
#include "runtime/metrics/metrics_log.h"
#include "runtime/metrics/progress.h"
#include "runtime/metrics/report.h"
#include "runtime/metrics/tensorboard.h"
#include "training/loop/run_folder.h"

namespace dtrain {
namespace {

constexpr Duration kSyncPatience = std::chrono::seconds(10);

double unix_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

struct RunLogger::Sinks {
  Sinks(const RunDirectory& folder, const std::string& config, std::int64_t start, std::int64_t resumed_step,
        const ProgressTarget& target)
      : run(folder),
        metrics((run.write_config(config), run.metrics()), start),
        curves(run.path(), unix_seconds(), resumed_step),
        progress(target.fd, target.options) {
    metrics.truncate_after(resumed_step, RunGenerations::read(run.checkpoints()));
  }

  RunDirectory run;
  MetricsLog metrics;
  TensorBoardWriter curves;
  ProgressLine progress;
};

RunLogger::RunLogger(const RunLoggerContext& context)
    : context_(context),
      writer_(context.log),
      spikes_(context.config.loss_spike),
      started_(steady_clock().now()) {}

RunLogger::~RunLogger() = default;

void RunLogger::post(BackgroundWriter::Entry entry) {
  writer_.post([permit = context_.permit, entry = std::move(entry)] {
    permit.check("a record of the run");
    entry();
  });
}

void RunLogger::record_in(const RunDirectory& run, const std::string& config, std::int64_t start,
                          std::int64_t resumed_step) {
  stop_recording();
  sinks_ =
      std::make_unique<Sinks>(run, config, start, resumed_step, worker_progress_target(context_.environment));
  forget();
}

void RunLogger::stop_recording() {
  writer_.drain(Deadline::never());
  sinks_.reset();
}

void RunLogger::open_logs(const std::filesystem::path& logs, const std::string& line) {
  if (!std::filesystem::is_directory(logs)) return;
  logs_ = logs;
  context_.log.attach(logs / fmt::format("rank-{}.log", context_.rank));
  if (context_.config.log_samples) samples_log_ = open_lines(samples_path());
  context_.log.note(LogLevel::info, line);
}

std::filesystem::path RunLogger::samples_path() const {
  return logs_ / fmt::format("samples-{}.jsonl", context_.rank);
}

void RunLogger::begin(const RunProgress& at) {
  rate_since_ = epoch_since_ = steady_clock().now();
  epoch_whole_ = at.position == 0;
  context_.clock = StepClock();
  clock_total_ = clock_own_ = {};
}

void RunLogger::step(StepReport report, const RunProgress& at) {
  StepRecord& record = report.record;
  last_loss_ = record.loss;
  if (const auto median = spikes_.judge(record.loss)) dump_batch(record.step, record.loss, median, at);
  rate_samples_ += report.samples;
  samples_done_ += report.samples;
  epoch_.losses += record.loss;
  ++epoch_.steps;
  epoch_.samples += report.samples;
  const TimePoint now = steady_clock().now();
  if (record.step == 1 && at.resumed_from == 0) note_first_step();
  const bool due = record.step % context_.config.log_every == 0 || record.step >= at.total_steps;
  if (due || samples_per_second_ == 0) {
    samples_per_second_ =
        static_cast<double>(rate_samples_) / std::chrono::duration<double>(now - rate_since_).count();
  }
  record.samples_per_second = samples_per_second_;
  if (sinks_) {
    const SpanScope span(context_.spans, "metrics", "phase");
    post_progress(record, at);
    if (due) post_step(record, at);
  }
  if (due) {
    rate_since_ = now;
    rate_samples_ = 0;
  }
  if (report.ends_epoch) end_epoch(record, now);
  context_.clock.lap(Phase::other);
  tell_status(record, at);
  context_.clock.finish_step();
}

// For the launcher, of every rank.
void RunLogger::tell_status(const StepRecord& record, const RunProgress& at) {
  if (context_.status == nullptr) return;
  constexpr double kNewest = 0.1;  // the weight of a step in the average
  const StepClock& clock = context_.clock;
  Duration own{};
  for (const Phase phase : {Phase::data, Phase::forward, Phase::backward, Phase::optimizer})
    own += clock.spent(phase);
  const auto seconds = [](Duration time) { return std::chrono::duration<double>(time).count(); };
  const double step = seconds(clock.total() - std::exchange(clock_total_, clock.total()));
  const double mine = seconds(own - std::exchange(clock_own_, own));
  // The first steps set up what later ones reuse.
  const auto average = [settled = clock.steps() >= 3](double& of, double newest) {
    of = settled ? of + kNewest * (newest - of) : newest;
  };
  context_.status->update([&](WorkerStatus& status) {
    if (status.state == WorkerState::joined) status.state = WorkerState::training;
    status.step = record.step;
    status.total_steps = at.total_steps;
    status.epoch = record.epoch;
    status.loss = record.loss;
    status.samples_per_second = record.samples_per_second;
    average(status.step_seconds, step);
    // Where the host runs ahead it waits for nobody, and times no phase.
    if (!context_.device.runs_ahead()) average(status.own_seconds, mine);
  });
}

void RunLogger::state(WorkerState state) {
  if (context_.status != nullptr)
    context_.status->update([state](WorkerStatus& status) { status.state = state; });
}

void RunLogger::durable(std::optional<std::int64_t> step) {
  if (!step || std::exchange(durable_step_, *step) == *step || context_.status == nullptr) return;
  context_.status->update([step](WorkerStatus& status) {
    status.checkpoint_step = *step;
    ++status.checkpoints;
  });
}

void RunLogger::post_progress(const StepRecord& record, const RunProgress& at) {
  const std::int64_t epochs = context_.config.epochs == INT64_MAX ? 0 : context_.config.epochs;
  const Progress progress{.step = record.step,
                          .total_steps = at.total_steps,
                          .epoch = record.epoch,
                          .epochs = epochs,
                          .loss = record.loss,
                          .samples_per_second = record.samples_per_second,
                          .tokens_per_sample = cost_ ? cost_->tokens : 0,
                          .time_left = std::nullopt,
                          .resident_bytes = resident_bytes()};
  post([sinks = sinks_.get(), progress] { sinks->progress.update(progress); });
}

void RunLogger::post_step(StepRecord record, const RunProgress& at) {
  record.time = unix_seconds();
  record.memory = memory_use();
  post([sinks = sinks_.get(), record] { sinks->metrics.write(record); });
  std::vector<std::pair<std::string, double>> points = {
      {"train/loss", record.loss},
      {"train/lr", record.lr},
      {"train/samples_per_second", record.samples_per_second},
      {"memory/allocated_bytes", static_cast<double>(record.memory->allocated_bytes)},
      {"memory/resident_bytes", static_cast<double>(record.memory->resident_bytes)}};
  if (const auto now = speed(at, record.samples_per_second)) {
    points.emplace_back("train/tokens_per_second", now->tokens_per_second);
    if (now->mfu) points.emplace_back("train/mfu", *now->mfu);
  }
  post_points(std::move(points), record.step, record.time);
}

void RunLogger::post_points(std::vector<std::pair<std::string, double>> points, std::int64_t step,
                            double time) {
  post([sinks = sinks_.get(), points = std::move(points), step, time] {
    sinks->curves.scalars(points, step, time);
  });
}

void RunLogger::end_epoch(const StepRecord& last, TimePoint now) {
  if (auto found = trained_.extract(last.epoch); !found.empty()) epoch_.trained = std::move(found.mapped());
  if (sinks_) {
    EpochRecord record{.epoch = last.epoch,
                       .step = last.step,
                       .seconds = std::chrono::duration<double>(now - epoch_since_).count(),
                       .whole = epoch_whole_,
                       .time = unix_seconds()};
    std::vector<std::pair<std::string, double>> points = {{"train/seconds_per_epoch", record.seconds}};
    if (const auto& trained = epoch_.trained) {
      record.train = trained->metrics;
      record.train_samples = trained->samples;
      for (const auto& [name, value] : trained->metrics) points.emplace_back("train/" + name, value);
    }
    post([sinks = sinks_.get(), record] { sinks->metrics.write(record); });
    post_points(std::move(points), record.step, record.time);
    epoch_.seconds = record.seconds;
    ended_ = epoch_;
    const std::int64_t every = context_.config.eval_every;
    const bool is_evaluated = every > 0 && (record.epoch + 1) % every == 0;
    if (!is_evaluated) post_result(epoch_line(record.epoch, {}));
  }
  epoch_ = {};
  epoch_since_ = now;
  epoch_whole_ = true;
}

void RunLogger::compared(std::int64_t step, const PhaseComparison& found) {
  const auto warn = [&](const std::string& text) {
    if (context_.rank == 0) context_.log.write(LogLevel::warning, fmt::format("step {}: {}", step, text));
  };
  if (found.slow) warn(*found.slow);
  for (const auto& [change, text] : found.stragglers) {
    warn(text);
    if (change.rank == context_.rank && context_.status != nullptr)
      context_.status->update([&](WorkerStatus& status) { status.slowness = change.slowness; });
  }
  if (sinks_) post_phases(step, found);
}

void RunLogger::post_phases(std::int64_t step, const PhaseComparison& found) {
  // However many ranks there are, the lines of a run stay short enough to be read in a moment.
  constexpr std::size_t kRanksEachTime = 64;
  const std::size_t ranks = found.milliseconds.empty() ? 0 : found.milliseconds.front().second.size();
  const auto every =
      static_cast<std::int64_t>(StragglerDetector::kEvery * std::max<std::size_t>(ranks / kRanksEachTime, 1));
  if (step % every >= StragglerDetector::kEvery) return;
  const PhasesRecord record{.step = step,
                            .steps = StragglerDetector::kEvery,
                            .milliseconds = found.milliseconds,
                            .time = unix_seconds()};
  post([sinks = sinks_.get(), record] { sinks->metrics.write(record); });
}

// At the end of an epoch and in the middle of one alike: the epoch the last step belonged to.
// "epoch 3: loss 0.5211, test accuracy 0.8122, test loss 0.5027, 6.90 s, 8,696 samples/s", as far as that is
// known: `tests` may be empty, and an evaluation may come without an end of an epoch before it. The shorter
// line ends in "8,696/s".
std::pair<std::string, std::string> RunLogger::epoch_line(std::int64_t epoch, const std::string& tests) {
  std::string rate;
  std::vector<std::string> parts;
  if (ended_)
    parts.push_back(fmt::format("loss {:.4f}", ended_->losses / static_cast<double>(ended_->steps)));
  if (ended_ && ended_->trained) add_metrics(parts, "train", ended_->trained->metrics);
  if (!tests.empty()) parts.push_back(tests);
  if (ended_) {
    const auto units = static_cast<double>(cost_ ? ended_->samples * cost_->tokens : ended_->samples);
    parts.push_back(format_seconds(ended_->seconds));
    rate = fmt::format(", {}", format_count(std::llround(units / std::max(ended_->seconds, 1e-9))));
  }
  const char* const unit = rate.empty() ? "" : cost_ ? " tokens/s" : " samples/s";
  ended_.reset();
  const std::string line = fmt::format("epoch {}: {}{}", epoch + 1, fmt::join(parts, ", "), rate);
  return {fmt::format("{}{}", line, unit), fmt::format("{}{}", line, rate.empty() ? "" : "/s")};
}

void RunLogger::evaluation(const Evaluation& evaluation, const Task& task, const RunProgress& at) {
  evaluation_ = evaluation;
  state(WorkerState::training);
  if (sinks_) post_evaluation(evaluation, at);
  // The page says after which epoch it was: not of the initial weights, where others follow.
  if (sinks_ && evaluation.confusion && (at.step > 0 || at.finished()))
    post_confusion(*evaluation.confusion, task, at);
  rate_since_ = epoch_since_ = steady_clock().now();
  rate_samples_ = 0;
  context_.clock.skip();
}

void RunLogger::trained(std::int64_t epoch, const std::optional<Evaluation>& found) {
  if (found) trained_[epoch] = *found;
}

void RunLogger::shown(const std::string& text, const RunProgress& at) {
  if (sinks_) {
    post([sinks = sinks_.get(), record = SampleRecord{.step = at.step, .text = text}] {
      sinks->metrics.write(record);
    });
    post([sinks = sinks_.get(), line = fmt::format("step {}: {}", at.step, printable(text, true))] {
      sinks->progress.result(line);
    });
  }
  rate_since_ = steady_clock().now();
  rate_samples_ = 0;
  context_.clock.skip();
}

void RunLogger::post_evaluation(const Evaluation& evaluation, const RunProgress& at) {
  const EvalRecord record{.epoch = at.last_epoch(),
                          .loss = evaluation.loss,
                          .metrics = evaluation.metrics,
                          .samples = evaluation.samples};
  std::vector<std::pair<std::string, double>> points{{"test/loss", record.loss}};
  for (const auto& [name, value] : record.metrics) points.emplace_back("test/" + name, value);
  std::vector<std::string> found;
  add_metrics(found, "test", record.metrics);
  found.push_back(fmt::format("test loss {:.4f}", record.loss));
  best_.add(evaluation, record.epoch);
  post([sinks = sinks_.get(), record] { sinks->metrics.write(record); });
  post_points(std::move(points), at.step, unix_seconds());
  post_result(epoch_line(record.epoch, fmt::format("{}", fmt::join(found, ", "))));
}

void RunLogger::post_result(const std::pair<std::string, std::string>& texts) {
  post([sinks = sinks_.get(), texts] { sinks->progress.result(texts.first, texts.second); });
}

// A picture that cannot be read is no reason to stop: the evaluation's numbers are recorded.
void RunLogger::post_confusion(const Confusion& confusion, const Task& task, const RunProgress& at) {
  const std::span<const Field> fields = test_->fields();
  const auto image = static_cast<std::size_t>(&input_field(task, fields) - fields.data());
  const EvaluatedAt evaluated{std::max<std::int64_t>(at.last_epoch(), 0), at.step};
  post([sinks = sinks_.get(), confusion, evaluated, source = test_, image,
        label = *task.predicted_field(fields), timeout = context_.config.collective_timeout,
        &log = context_.log] {
    std::string text;
    try {
      text = evaluation_json(confusion, evaluated, {source, label, image}, Deadline::after(timeout));
    } catch (const Error& error) {
      log.write(LogLevel::warning, fmt::format("the report does not show the mistakes: {}", error.what()));
      return;
    }
    replace_file(sinks->run.evaluation(), text);
  });
}

void RunLogger::fed(FedPictures pictures) {
  if (!sinks_) return;
  post([sinks = sinks_.get(), pictures = std::move(pictures)] {
    if (const std::string text = batch_json(pictures); !text.empty()) replace_file(sinks->run.batch(), text);
  });
}

void RunLogger::samples(std::span<const std::int64_t> indices, const RunProgress& at) {
  spikes_.take(at.step + 1, indices);
  if (!samples_log_) return;
  context_.permit.check("the log of samples");
  std::string line =
      fmt::format("{{\"start\":{},\"step\":{},\"epoch\":{},\"world\":{},\"indices\":[{}]}}\n", at.start,
                  at.step + 1, at.epoch, context_.world_size, fmt::join(indices, ","));
  const auto write = [this, line = std::move(line)] {
    append_whole(samples_log_.get(), line, samples_path());
  };
  try {
    write();
  } catch (const SystemError&) {
    post(write);  // tried again like the other records
  }
}

void RunLogger::bad_loss(std::int64_t step, double loss, const RunProgress& at) {
  dump_batch(step, loss, std::nullopt, at);
}

void RunLogger::dump_batch(std::int64_t step, double loss, std::optional<double> median,
                           const RunProgress& at) {
  const std::string name = fmt::format("batch-step-{}-rank-", step);
  if (median && context_.rank == 0) {
    context_.log.write(LogLevel::warning,
                       fmt::format("step {}: the loss is {:.4g}, {:.1f} times the median of the steps before "
                                   "({:.4g}); the samples of the batch are in logs/{}*.json",
                                   step, loss, loss / *median, *median, name));
  }
  const std::vector<std::int64_t> samples = spikes_.samples_of(step);
  if (logs_.empty() || samples.empty()) return;
  const DumpedBatch batch{at.start, step, at.epoch, context_.rank, loss, median, samples};
  post([path = logs_ / fmt::format("{}{}.json", name, context_.rank), batch, train = train_] {
    replace_file(path, batch_json(batch, train.get()));
  });
}

void RunLogger::forget() {
  spikes_.forget();
  rate_samples_ = 0;
  rate_since_ = steady_clock().now();
}

void RunLogger::sync() {
  if (!sinks_) return;
  post([sinks = sinks_.get()] { sinks->metrics.sync(); });
  if (!writer_.drain(Deadline::after(kSyncPatience))) {
    context_.log.write(LogLevel::warning,
                       "a checkpoint is written before the metrics up to it are on the disk, which is slow");
  }
}

void RunLogger::message(const std::string& text) {
  if (sinks_) post([sinks = sinks_.get(), text] { sinks->progress.message(text); });
}

void RunLogger::finish(const std::string& status, const RunProgress& at) {
  if (!sinks_) return;
  std::string text = fmt::format("{}: {} steps, {} in this start", status, format_count(at.step),
                                 format_duration(steady_clock().now() - started_));
  if (const std::string best = best_.text(); !best.empty()) text += ", " + best;
  post([sinks = sinks_.get(), summary = summarize(status, at)] {
    sinks->progress.finish();
    sinks->run.write_summary(summary_json(summary));
    write_report(sinks->run);
  });
  std::string use = status == "finished" ? context_.config.use : "";
  if (const std::size_t place = use.find("RUN"); place != std::string::npos)
    use.replace(place, 3, sinks_->run.path().string()).insert(0, 1, '\n');
  post([sinks = sinks_.get(), text, use] {
    sinks->progress.message(fmt::format("{}\nreport: {}{}", text, sinks->run.report().string(), use));
  });
}

MemoryUse RunLogger::memory_use() const {
  return {.allocated_bytes = static_cast<std::int64_t>(context_.device.allocated_bytes()),
          .peak_allocated_bytes = static_cast<std::int64_t>(context_.device.peak_allocated_bytes()),
          .resident_bytes = resident_bytes(),
          .peak_resident_bytes = peak_resident_bytes()};
}

std::optional<ModelSpeed> RunLogger::speed(const RunProgress& at, double samples_per_second) const {
  if (!cost_) return std::nullopt;
  const TrainConfig& config = context_.config;
  const auto each = static_cast<std::int64_t>(std::max<std::size_t>(config.devices.size(), 1));
  std::optional<double> peak;
  if (!context_.device.is_emulated()) peak = peak_flops(config, context_.device.name());
  return model_speed(*cost_, train_ ? at.samples(train_->size(), config) : 0, samples_per_second, peak,
                     each * context_.world_size);
}

RunSummary RunLogger::summarize(const std::string& status, const RunProgress& at) const {
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
  summary.speed = speed(at, summary.samples_per_second);
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
  const std::string* launch = find_variable(context_.environment, kLaunchTimeVariable);
  if (launch == nullptr) return;
  const auto nanoseconds = parse_integer(*launch);
  if (!nanoseconds) return;
  const auto now = std::chrono::duration_cast<std::chrono::nanoseconds>(
                       std::chrono::system_clock::now().time_since_epoch())
                       .count();
  seconds_to_first_step_ = static_cast<double>(now - *nanoseconds) * 1e-9;
}

}  // namespace dtrain
