#include "training/start/introduce.h"

#include <fmt/format.h>

#include <utility>

#include "training/log/introduction.h"
#include "training/start/unused_gpus.h"

namespace dtrain {

std::string introduction_of(const TrainConfig& config, const InitialNetwork& initial,
                            const TrainingData& data, const Communicator& communicator, const Device& device,
                            const std::filesystem::path& folder) {
  const auto dataset = config.settings.find("dataset");
  return text_of({.model = config.model,
                  .parameters = initial.parameters,
                  .trained = initial.trained,
                  .data = dataset != config.settings.end() ? dataset->second : data.train().name(),
                  .train_samples = data.train().size(),
                  .test_samples = data.test()->size(),
                  .workers = communicator.size(),
                  .device = device.name(),
                  .backend = std::string(communicator.backend()),
                  .steps_per_epoch = data.sampler().steps_from(0),
                  .global_batch = config.batch.global,
                  .optimizer = std::string(name_of(config.optimizer.rule)),
                  .lr = lr_of(config.optimizer.rule),
                  .folder = folder});
}

std::vector<std::string> notes_of(const TrainConfig& config, const InitialNetwork& initial,
                                  const Device& device, const Environment& environment) {
  std::vector<std::string> notes = initial.notes;
  if (const auto decay = config.optimizer.average_decay)
    notes.push_back(fmt::format("evaluating averaged weights (--ema {:g})", *decay));
  if (device.is_emulated()) {
    notes.push_back(fmt::format(
        "device {}: software that emulates a GPU; its speed says nothing about a real one", device.name()));
  }
  if (config.device != "auto" || !config.devices.empty()) return notes;
  if (std::string why = why_no_gpu(device, environment); !why.empty()) notes.push_back(std::move(why));
  return notes;
}

}  // namespace dtrain
