#include "training/log/run_records.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "training/log/machine.h"
#include "training/loop/run_folder.h"
#include "training/use/saved_run.h"

namespace dtrain {

std::string config_json(const Options& options, const Environment& environment, const TrainConfig& config,
                        std::span<const Field> fields, const Device& device, const TunedConfig& tuned) {
  nlohmann::json json;
  for (const auto& [name, value] : options.all())
    json["options"][name] = {{"value", value.text}, {"source", value.source}};
  json["identity"] = identity(config);
  json["fields"] = nlohmann::json::parse(fields_json(fields));
  json["device"] = device.name();
  json["emulated"] = device.is_emulated();
  json["global_batch_size"] = config.batch.global;
  json["batch_size_per_worker"] = config.batch.per_worker;
  json["accumulate"] = config.batch.accumulate;
  json["lr"] = lr_of(config.optimizer.rule);
  if (!tuned.empty()) json["chosen"] = tuned;
  const MachineInfo machine = machine_info();
  json["machine"] = {{"host", machine.host},
                     {"system", machine.system},
                     {"processor", machine.processor},
                     {"cores", machine.cores},
                     {"memory_bytes", machine.memory_bytes}};
  if (const std::string* launch = find_variable(environment, kLaunchTimeVariable)) {
    json["launch_time_ns"] = *launch;
  }
  return json.dump(2);
}

std::string batch_json(const DumpedBatch& batch, const Source* train) {
  nlohmann::json json = {{"start", batch.start},
                         {"step", batch.step},
                         {"epoch", batch.epoch},
                         {"rank", batch.rank},
                         {"loss", batch.loss},  // null where it is not finite
                         {"median_loss", batch.median ? nlohmann::json(*batch.median) : nlohmann::json()},
                         {"indices", batch.samples}};
  if (train == nullptr) return json.dump() + "\n";
  json["source"] = train->name();
  for (const std::int64_t sample : batch.samples) json["rows"].push_back(train->place_of(sample));
  try {
    for (const std::int64_t sample : batch.samples) {
      if (std::string file = train->file_of(sample); !file.empty()) json["files"].push_back(std::move(file));
    }
  } catch (const Error& error) {  // it may be the very reason
    json["files"] = fmt::format("not known: {}", error.what());
  }
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

void add_metrics(std::vector<std::string>& texts, std::string_view split,
                 const std::vector<std::pair<std::string, double>>& metrics) {
  for (const auto& [name, value] : metrics) texts.push_back(fmt::format("{} {} {:.4f}", split, name, value));
}

std::string summary_json(const RunSummary& summary) {
  nlohmann::json json = {{"status", summary.status},
                         {"start", summary.start},
                         {"steps", summary.steps},
                         {"epochs", summary.epochs},
                         {"world_size", summary.world_size},
                         {"loss", summary.loss},
                         {"samples_per_second", summary.samples_per_second},
                         {"seconds", summary.seconds},
                         {"device", summary.device},
                         {"emulated", summary.emulated},
                         {"resumed_from_step", summary.resumed_from_step},
                         {"allocated_bytes", summary.memory.allocated_bytes},
                         {"peak_allocated_bytes", summary.memory.peak_allocated_bytes},
                         {"resident_bytes", summary.memory.resident_bytes},
                         {"peak_resident_bytes", summary.memory.peak_resident_bytes},
                         {"phase_milliseconds_per_step", summary.phase_milliseconds}};
  if (const auto& speed = summary.speed) {
    json["tokens"] = speed->tokens;
    json["tokens_per_second"] = speed->tokens_per_second;
    json["model_flops_per_second"] = speed->flops_per_second;
    json["model_flops_formula"] = speed->cost.formula;
    if (speed->mfu) json["mfu"] = *speed->mfu;
  }
  if (summary.delays) json["staleness"] = nlohmann::json::parse(summary.delays->text());
  if (summary.evaluation) {
    json["test"] = {{"loss", summary.evaluation->loss}, {"samples", summary.evaluation->samples}};
    for (const auto& [name, value] : summary.evaluation->metrics) json["test"][name] = value;
  }
  if (summary.seconds_to_first_step) json["seconds_to_first_step"] = *summary.seconds_to_first_step;
  return json.dump(2);
}

}  // namespace dtrain
