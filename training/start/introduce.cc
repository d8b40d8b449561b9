#include "training/start/introduce.h"

#include "training/log/introduction.h"

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

}  // namespace dtrain
