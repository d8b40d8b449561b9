#include "training/log/run_records.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "training/log/machine.h"
#include "training/loop/run_folder.h"
#include "training/use/saved_run.h"

namespace dtrain {

std::string config_json(const Options& options, const Environment& environment, const TrainConfig& recipe,
                        std::span<const Field> fields, const Device& device, const Choices& choices) {
  nlohmann::json config;
  for (const auto& [name, value] : options.all())
    config["options"][name] = {{"value", value.text}, {"source", value.source}};
  config["identity"] = identity(recipe);
  config["fields"] = nlohmann::json::parse(fields_json(fields));
  config["device"] = device.name();
  config["emulated"] = device.is_emulated();
  config["global_batch_size"] = recipe.batch.global;
  config["batch_size_per_worker"] = recipe.batch.per_worker;
  config["accumulate"] = recipe.batch.accumulate;
  config["lr"] = lr_of(recipe.optimizer.rule);
  if (!choices.empty()) config["chosen"] = choices;
  const MachineNote machine = note_machine();
  config["machine"] = {{"host", machine.host},
                       {"system", machine.system},
                       {"processor", machine.processor},
                       {"cores", machine.cores},
                       {"memory_bytes", machine.memory_bytes}};
  if (const std::string* launch = find_variable(environment, kLaunchTimeVariable)) {
    config["launch_time_ns"] = *launch;
  }
  return config.dump(2);
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
  if (summary.delays) json["staleness"] = nlohmann::json::parse(summary.delays->text());
  if (summary.evaluation) {
    json["test"] = {{"loss", summary.evaluation->loss}, {"samples", summary.evaluation->samples}};
    for (const auto& [name, value] : summary.evaluation->metrics) json["test"][name] = value;
  }
  if (summary.seconds_to_first_step) json["seconds_to_first_step"] = *summary.seconds_to_first_step;
  return json.dump(2);
}

}  // namespace dtrain
