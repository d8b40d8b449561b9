#include "launcher/control/job_status.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace dtrain::launcher {
namespace {

using OrderedJson = nlohmann::ordered_json;

/// Absent where it is not known: JSON has no NaN.
void add(OrderedJson& to, const char* name, double value) {
  if (std::isfinite(value)) to[name] = value;
}

std::string utc(std::int64_t ns) {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(static_cast<std::time_t>(ns / 1'000'000'000)));
}

OrderedJson worker_json(const WorkerJobStatus& worker) {
  OrderedJson json = {{"rank", worker.rank}, {"local_rank", worker.local_rank}};
  if (worker.server) json["server"] = *worker.server;
  if (worker.pid > 0) json["pid"] = worker.pid;
  if (!worker.device.empty()) json["device"] = worker.device;
  json["state"] = state_of(worker);
  if (worker.exit_code) json["exit_code"] = *worker.exit_code;
  if (const auto& reported = worker.reported; reported && !worker.server) {
    json["step"] = reported->step;
    add(json, "step_seconds", reported->step_seconds);
    add(json, "own_seconds", reported->own_seconds);
    if (const Slowness& slow = reported->slowness; slow.phase != StragglerPhase::none)
      json["straggler"] = {{"phase", name_of(slow.phase)}, {"factor", slow.factor}};
  }
  json["cpu_seconds"] = worker.cpu_seconds;
  json["resident_bytes"] = worker.resident_bytes;
  return json;
}

void add_progress(OrderedJson& json, const JobStatus& job) {
  const WorkerJobStatus* first = first_that_reports(job);
  if (first == nullptr) return;
  const WorkerStatus& status = *first->reported;
  json["step"] = status.step;
  json["total_steps"] = status.total_steps;
  json["epoch"] = status.epoch;
  add(json, "loss", status.loss);
  add(json, "samples_per_second", status.samples_per_second);
  add(json, "step_seconds", status.step_seconds);
  if (status.checkpoint_step >= 0 || status.saving) {
    OrderedJson& checkpoint = json["checkpoint"] = {{"saving", status.saving}, {"count", status.checkpoints}};
    if (status.checkpoint_step >= 0) checkpoint["step"] = status.checkpoint_step;
    add(checkpoint, "seconds", status.checkpoint_seconds);
  }
  if (const auto slowest = slowest_rank(job)) json["slowest_rank"] = *slowest;
}

}  // namespace

std::string_view state_of(const WorkerJobStatus& worker) noexcept {
  switch (worker.state) {
    case ProcessState::not_started:
      return "not started";
    case ProcessState::running:
      return "running";
    case ProcessState::reports:
      return worker.reported ? name_of(worker.reported->state) : "running";
    case ProcessState::stopped:
      return "stopped";
    case ProcessState::hanging:
      return "hanging";
    case ProcessState::exited:
      return "exited";
    case ProcessState::failed:
      return "failed";
  }
  return "running";
}

const WorkerJobStatus* first_that_reports(const JobStatus& job) {
  const WorkerJobStatus* first = nullptr;
  for (const WorkerJobStatus& worker : job.workers) {
    const bool counts = worker.reported && !worker.server && worker.reported->total_steps > 0;
    if (counts && (first == nullptr || worker.rank < first->rank)) first = &worker;
  }
  return first;
}

std::optional<int> slowest_rank(const JobStatus& job) {
  const WorkerJobStatus* slowest = nullptr;
  int known = 0;
  for (const WorkerJobStatus& worker : job.workers) {
    if (!worker.reported || worker.exit_code || !std::isfinite(worker.reported->own_seconds)) continue;
    ++known;
    if (slowest == nullptr || worker.reported->own_seconds > slowest->reported->own_seconds)
      slowest = &worker;
  }
  return known < 2 ? std::nullopt : std::optional(slowest->rank);
}

std::string status_json(const JobStatus& job) {
  OrderedJson json = {{"schema", JobStatus::kSchema}};
  if (!job.run_id.empty()) json["run_id"] = job.run_id;
  json["pid"] = job.pid;
  json["host"] = job.host;
  json["version"] = job.version;
  json["state"] = job.state;
  json["started"] = utc(job.started_ns);
  json["seconds"] = std::chrono::duration<double>(job.running).count();
  json["program"] = job.program;
  json["max_restarts"] = job.max_restarts;
  json["restarts"] = job.restarts;
  if (job.round >= 0) {
    json["round"] = job.round;
    json["node_rank"] = job.node_rank;
    json["nodes"] = job.nodes;
    json["world_size"] = job.world_size;
    json["first_rank"] = job.first_rank;
  }
  add_progress(json, job);
  json["workers"] = OrderedJson::array();
  for (const WorkerJobStatus& worker : job.workers) json["workers"].push_back(worker_json(worker));
  return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

}  // namespace dtrain::launcher
