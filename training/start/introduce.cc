#include "training/start/introduce.h"

#include <fmt/format.h>

#include <utility>

#include "training/log/introduction.h"
#include "training/start/unused_gpus.h"

namespace dtrain {

/// What --dataset names, or what a task that opens data of its own calls them.
static std::string name_of_data(const TrainConfig& config, const Source& train) {
  const auto option = config.settings.find("dataset");
  const bool is_opened = option != config.settings.end() && (option->second.find(':') != std::string::npos ||
                                                             train.name().starts_with(option->second));
  return is_opened ? option->second : train.name();
}

std::string introduction_of(const TrainConfig& config, const InitialNetwork& initial,
                            const TrainingData& data, const Communicator& communicator, const Device& device,
                            const std::filesystem::path& folder) {
  return text_of({.model = config.model,
                  .parameters = initial.parameters,
                  .trained = initial.trained,
                  .data = name_of_data(config, data.train()),
                  .train_samples = data.train().size(),
                  .test_samples = data.test()->size(),
                  .workers = communicator.size(),
                  .device = device.name(),
                  .backend = std::string(communicator.backend()),
                  .steps_per_epoch = data.sampler().steps_from(0),
                  .global_batch = config.batch.global,
                  .optimizer = config.task.has_optimizer ? "" : std::string(name_of(config.optimizer.rule)),
                  .lr = lr_of(config.optimizer.rule),
                  .folder = folder});
}

std::vector<std::string> notes_of(const TrainConfig& config, const InitialNetwork& initial,
                                  const Device& device, const Environment& environment) {
  std::vector<std::string> notes = initial.notes;
  if (config.ema) notes.push_back(fmt::format("evaluating averaged weights (--ema {:g})", *config.ema));
  if (config.swa_from)
    notes.push_back(fmt::format("evaluating averaged weights from epoch {} on (--swa-from {})",
                                *config.swa_from + 1, *config.swa_from));
  if (device.is_emulated()) {
    notes.push_back(fmt::format(
        "device {}: software that emulates a GPU; its speed says nothing about a real one", device.name()));
  }
  if (config.device != "auto" || !config.devices.empty()) return notes;
  if (std::string why = why_no_gpu(device, environment); !why.empty()) notes.push_back(std::move(why));
  return notes;
}

}  // namespace dtrain
