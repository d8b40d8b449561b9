// A row a metric: what it is called, what it means, where its value is.
#include "launcher/control/open_metrics.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <map>

namespace dtrain::launcher {
namespace {

/// A metric without labels, as the first worker that reports has it.
struct JobRow {
  const char* name;
  const char* type;
  const char* unit;  ///< the end of the name; "": none
  const char* help;
  double (*value)(const WorkerStatus&);
};

/// One with a value for each worker.
struct WorkerRow {
  const char* name;
  const char* type;
  const char* unit;
  const char* help;
  double (*value)(const WorkerJobStatus&);
};

std::string number(double value) {
  return std::isinf(value) ? value > 0 ? "+Inf" : "-Inf" : fmt::format("{}", value);
}

double whole(std::int64_t value) { return static_cast<double>(value); }

double known_if(bool known, double value) { return known ? value : WorkerStatus::kUnknown; }

constexpr JobRow kJobRows[] = {
    {"dtrain_step", "gauge", "", "Last finished training step.",
     [](const WorkerStatus& s) { return whole(s.step); }},
    {"dtrain_planned_steps", "gauge", "", "Training steps of the whole run.",
     [](const WorkerStatus& s) { return whole(s.total_steps); }},
    {"dtrain_epoch", "gauge", "", "Epoch of the last step, from 0.",
     [](const WorkerStatus& s) { return whole(s.epoch); }},
    {"dtrain_loss", "gauge", "", "Training loss of the last step, the mean over the global batch.",
     [](const WorkerStatus& s) { return s.loss; }},
    {"dtrain_samples_per_second", "gauge", "", "Samples that all workers together train on in a second.",
     [](const WorkerStatus& s) { return s.samples_per_second; }},
    {"dtrain_step_duration_seconds", "gauge", "seconds", "Time of a step, averaged over the last ones.",
     [](const WorkerStatus& s) { return s.step_seconds; }},
    {"dtrain_checkpoints", "counter", "", "Checkpoints that this start of the workers has written.",
     [](const WorkerStatus& s) { return whole(s.checkpoints); }},
    {"dtrain_checkpoint_step", "gauge", "", "Step of the newest checkpoint on the disk.",
     [](const WorkerStatus& s) { return known_if(s.checkpoint_step >= 0, whole(s.checkpoint_step)); }},
    {"dtrain_checkpoint_duration_seconds", "gauge", "seconds",
     "Time that writing the newest checkpoint took, beside training.",
     [](const WorkerStatus& s) { return s.checkpoint_seconds; }},
    {"dtrain_checkpoint_saving", "gauge", "", "1 while a checkpoint is being written, else 0.",
     [](const WorkerStatus& s) { return s.saving ? 1.0 : 0.0; }},
};

constexpr WorkerRow kWorkerRows[] = {
    {"dtrain_worker_step", "gauge", "", "Last finished training step of this worker.",
     [](const WorkerJobStatus& w) {
       return w.reported && !w.server ? whole(w.reported->step) : WorkerStatus::kUnknown;
     }},
    {"dtrain_worker_own_seconds", "gauge", "seconds",
     "Part of a step in which this worker does not wait for others; the largest is the slowest worker's.",
     [](const WorkerJobStatus& w) { return w.reported ? w.reported->own_seconds : WorkerStatus::kUnknown; }},
    {"dtrain_worker_resident_memory_bytes", "gauge", "bytes",
     "Resident memory of this worker and all processes that it has started.",
     [](const WorkerJobStatus& w) { return known_if(w.pid > 0, static_cast<double>(w.resident_bytes)); }},
    {"dtrain_worker_cpu_seconds", "counter", "seconds",
     "CPU time of this worker and all processes that it has started.",
     [](const WorkerJobStatus& w) { return known_if(w.pid > 0, w.cpu_seconds); }},
};

/// All that state_of() says, so that a state without a worker is 0 and not missing.
constexpr std::array<std::string_view, 11> kStates = {"not started", "starting", "joined",  "training",
                                                      "evaluating",  "stopping", "running", "stopped",
                                                      "hanging",     "exited",   "failed"};

class Text {
 public:
  void family(std::string_view name, std::string_view type, std::string_view unit, std::string_view help) {
    text_ += fmt::format("# TYPE {} {}\n", name, type);
    if (!unit.empty()) text_ += fmt::format("# UNIT {} {}\n", name, unit);
    text_ += fmt::format("# HELP {} {}\n", name, escaped_label(help));
    name_ = name;
    suffix_ = type == "counter" ? "_total" : type == "info" ? "_info" : "";
  }
  /// `labels`: "rank=\"1\"", or empty.
  void sample(const std::string& labels, double value) {
    text_ +=
        fmt::format("{}{}{} {}\n", name_, suffix_, labels.empty() ? "" : "{" + labels + "}", number(value));
  }
  std::string end() { return text_ + "# EOF\n"; }

 private:
  std::string text_, name_, suffix_;
};

void add_job(Text& text, const JobStatus& job) {
  text.family("dtrain_job", "info", "", "The job and the launcher that tells.");
  text.sample(
      fmt::format("run_id=\"{}\",host=\"{}\",node_rank=\"{}\",version=\"{}\"", escaped_label(job.run_id),
                  escaped_label(job.host), job.node_rank, escaped_label(job.version)),
      1);
  text.family("dtrain_job_start_time_seconds", "gauge", "seconds", "When the launcher began, Unix time.");
  text.sample("", static_cast<double>(job.started_ns / 1'000'000) * 1e-3);
  text.family("dtrain_restarts", "counter", "", "Restarts of all workers after a failure.");
  text.sample("", job.restarts);
  text.family("dtrain_restarts_allowed", "gauge", "", "Restarts that --max-restarts allows.");
  text.sample("", job.max_restarts);
  text.family("dtrain_world_size", "gauge", "", "Workers of the job, on all nodes.");
  text.sample("", job.world_size);
  std::map<std::string_view, int> counts;
  for (const WorkerJobStatus& worker : job.workers) ++counts[state_of(worker)];
  text.family("dtrain_workers", "gauge", "", "Workers of this node, parameter servers included, by state.");
  for (const std::string_view state : kStates)
    text.sample(fmt::format("state=\"{}\"", state), counts.contains(state) ? counts[state] : 0);
}

std::string labels_of(const WorkerJobStatus& worker) {
  return worker.server ? fmt::format("server=\"{}\"", *worker.server)
                       : fmt::format("rank=\"{}\"", worker.rank);
}

/// Of each worker and phase, so that one that recovers is 0 and not missing.
void add_stragglers(Text& text, const JobStatus& job) {
  text.family("dtrain_worker_straggler", "gauge", "",
              "1 where this worker has been slower than the others for minutes, in the phase of a step that "
              "is slow; else 0.");
  for (const WorkerJobStatus& worker : job.workers) {
    if (!worker.reported || worker.server || std::isnan(worker.reported->own_seconds)) continue;
    for (const StragglerPhase phase : {StragglerPhase::data, StragglerPhase::compute})
      text.sample(fmt::format("{},host=\"{}\",device=\"{}\",phase=\"{}\"", labels_of(worker),
                              escaped_label(job.host), escaped_label(worker.device), name_of(phase)),
                  worker.reported->slowness.phase == phase ? 1 : 0);
  }
}

}  // namespace

std::string escaped_label(std::string_view text) {
  std::string safe;
  for (const char c : text) {
    if (c == '\\' || c == '"') safe += '\\';
    if (c == '\n')
      safe += "\\n";
    else
      safe += c;
  }
  return safe;
}

std::string open_metrics(const JobStatus& job) {
  Text text;
  add_job(text, job);
  if (const WorkerJobStatus* first = first_that_reports(job)) {
    for (const JobRow& row : kJobRows) {
      const double value = row.value(*first->reported);
      if (std::isnan(value)) continue;
      text.family(row.name, row.type, row.unit, row.help);
      text.sample("", value);
    }
  }
  for (const WorkerRow& row : kWorkerRows) {
    text.family(row.name, row.type, row.unit, row.help);
    for (const WorkerJobStatus& worker : job.workers) {
      if (const double value = row.value(worker); !std::isnan(value)) text.sample(labels_of(worker), value);
    }
  }
  add_stragglers(text, job);
  return text.end();
}

}  // namespace dtrain::launcher
