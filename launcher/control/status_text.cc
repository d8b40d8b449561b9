// The status for people. Made from its JSON, so that it is what programs see, and the launcher that is asked
// does none of the work.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "launcher/control/job_status.h"
#include "launcher/output/lines.h"
#include "runtime/base/error.h"

namespace dtrain::launcher {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kColumns = 80;
constexpr const char* kIndent = "  ";

Json parsed(std::string_view text) {
  Json json = Json::parse(text, nullptr, false);
  if (json.is_object() && json.value("schema", 0) == JobStatus::kSchema) return json;
  throw DataError("the launcher's answer", -1, fmt::format("a status of schema {}", JobStatus::kSchema),
                  json.is_object() ? fmt::format("schema {}; use that job's own dtrain-launch, or --json",
                                                 json.value("schema", 0))
                                   : "something else");
}

/// "3 d 4 h", "2 min 5 s", "0.4 s", "12 ms"
std::string time_text(double seconds) {
  if (seconds < 1) return fmt::format("{:.3g} ms", 1e3 * seconds);
  if (seconds < 10) return fmt::format("{:.1f} s", seconds);
  const auto whole = static_cast<long>(seconds);
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {} s", whole / 60, whole % 60);
  if (whole < 86400) return fmt::format("{} h {} min", whole / 3600, whole % 3600 / 60);
  return fmt::format("{} d {} h", whole / 86400, whole % 86400 / 3600);
}

std::string bytes_text(double bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  while (bytes >= 999.5 && unit + 1 < std::size(kUnits)) {
    bytes /= 1024;
    ++unit;
  }
  return fmt::format("{:.3g} {}", bytes, kUnits[unit]);
}

std::string count_of(long count, const char* thing) {
  return fmt::format("{} {}{}", count, thing, count == 1 ? "" : "s");
}

/// Parts joined by commas; a part that has no room begins another line. One that is longer than a line is
/// cut.
std::string wrapped(const std::vector<std::string>& parts) {
  std::string text, line;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::string part = parts[i] + (i + 1 < parts.size() ? "," : "");
    if (!line.empty() && line.size() + 1 + part.size() > kColumns) {
      text += line + "\n";
      line = kIndent;
    } else if (!line.empty()) {
      line += " ";
    }
    line += part;
    if (line.size() > kColumns) line = std::string(first_columns(line, kColumns - 1)).append(kCut);
  }
  return text + line + "\n";
}

std::string program_text(const Json& program) {
  std::string text;
  for (const Json& word : program) text.append(text.empty() ? "" : " ").append(word.get<std::string>());
  return escape_controls(text);
}

std::string name_of_job(const Json& json) {
  return json.contains("run_id") ? escape_controls(json["run_id"].get<std::string>()) : "(not begun)";
}

std::vector<std::string> job_parts(const Json& json) {
  std::vector<std::string> parts{
      fmt::format("job {} (launcher {} on {})", name_of_job(json), json["pid"].get<long>(),
                  escape_controls(json["host"].get<std::string>())),
      fmt::format("{} for {}", json["state"].get<std::string>(), time_text(json["seconds"].get<double>()))};
  if (json.value("nodes", 1) > 1)
    parts.push_back(fmt::format("node {} of {}", json["node_rank"].get<int>(), json["nodes"].get<int>()));
  if (json.contains("world_size")) parts.push_back(count_of(json["world_size"].get<long>(), "worker"));
  if (json["restarts"].get<int>() > 0 || json["max_restarts"].get<int>() > 0)
    parts.push_back(
        fmt::format("restarts {} of {}", json["restarts"].get<int>(), json["max_restarts"].get<int>()));
  return parts;
}

std::vector<std::string> progress_parts(const Json& json) {
  std::vector<std::string> parts{
      fmt::format("step {} of {}", json["step"].get<long>(), json["total_steps"].get<long>()),
      fmt::format("epoch {}", json["epoch"].get<long>() + 1)};
  if (json.contains("loss")) parts.push_back(fmt::format("loss {:.4g}", json["loss"].get<double>()));
  if (json.contains("step_seconds"))
    parts.push_back(fmt::format("{} a step", time_text(json["step_seconds"].get<double>())));
  if (json.contains("samples_per_second"))
    parts.push_back(fmt::format("{:.4g} samples/s", json["samples_per_second"].get<double>()));
  if (!json.contains("checkpoint")) return parts;
  const Json& checkpoint = json["checkpoint"];
  if (checkpoint.contains("step"))
    parts.push_back(
        fmt::format("checkpoint of step {}{}", checkpoint["step"].get<long>(),
                    checkpoint.contains("seconds")
                        ? fmt::format(" (took {})", time_text(checkpoint["seconds"].get<double>()))
                        : ""));
  if (checkpoint["saving"].get<bool>()) parts.emplace_back("another is being written");
  return parts;
}

std::vector<std::string> straggler_parts(const Json& worker) {
  const Json& straggler = worker["straggler"];
  return {
      fmt::format("rank {} ({}) is a straggler: slow is {}", worker["rank"].get<int>(),
                  worker.value("device", "CPU"), straggler["phase"].get<std::string>()),
      fmt::format("its part of a step takes {:.2f} times the others'", straggler["factor"].get<double>())};
}

std::string worker_row(const Json& worker, bool slowest) {
  const auto time = [&](const char* name) {
    return worker.contains(name) ? fmt::format("{:.3g}", 1e3 * worker[name].get<double>()) : "-";
  };
  std::string state = worker["state"].get<std::string>();
  if (worker.contains("exit_code") && worker["exit_code"] != 0)
    state += fmt::format(" ({})", worker["exit_code"].get<int>());
  const std::string rank = worker.contains("server") ? fmt::format("server {}", worker["server"].get<int>())
                                                     : std::to_string(worker["rank"].get<int>());
  return fmt::format("{:>9} {:>8}  {:<12} {:>9} {:>9} {:>9} {:>9}{}\n", rank,
                     worker.contains("pid") ? std::to_string(worker["pid"].get<long>()) : "-", state,
                     worker.contains("step") ? std::to_string(worker["step"].get<long>()) : "-",
                     time("step_seconds"), time("own_seconds"),
                     bytes_text(worker["resident_bytes"].get<double>()), slowest ? " slowest" : "");
}

}  // namespace

std::string status_text(std::string_view text) {
  const Json json = parsed(text);
  std::string out = wrapped(job_parts(json));
  out += wrapped({"program " + program_text(json["program"])});
  if (json.contains("step")) out += wrapped(progress_parts(json));
  if (json["workers"].empty()) return out;
  out += fmt::format("{:>9} {:>8}  {:<12} {:>9} {:>9} {:>9} {:>9}\n", "rank", "pid", "state", "step",
                     "ms/step", "ms own", "memory");
  for (const Json& worker : json["workers"]) {
    const bool slowest =
        json.contains("slowest_rank") && !worker.contains("server") && worker["rank"] == json["slowest_rank"];
    out += worker_row(worker, slowest);
  }
  for (const Json& worker : json["workers"]) {
    if (worker.contains("straggler")) out += wrapped(straggler_parts(worker));
  }
  return out;
}

std::string jobs_text(const std::vector<std::string>& jsons) {
  std::string out = fmt::format("{:<22} {:>8}  {:<8} {:>7} {:>9}  {}\n", "job", "launcher", "state",
                                "workers", "step", "program");
  for (const std::string& text : jsons) {
    const Json json = parsed(text);
    const std::string row =
        fmt::format("{:<22} {:>8}  {:<8} {:>7} {:>9}  {}", name_of_job(json), json["pid"].get<long>(),
                    json["state"].get<std::string>(), json["workers"].size(),
                    json.contains("step") ? std::to_string(json["step"].get<long>()) : "-",
                    program_text(json["program"]));
    out += row.size() > kColumns ? std::string(first_columns(row, kColumns - 1)).append(kCut) + "\n"
                                 : row + "\n";
  }
  return out;
}

}  // namespace dtrain::launcher
