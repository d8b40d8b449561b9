// What make_golden.py recorded of one model of transformers, and the folder that it would have been published
// in.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "models/text/text_model.h"
#include "runtime/checkpoint/tensor_files.h"
#include "runtime/tensor/named_tensors.h"
#include "tests/support/temp_dir.h"
#include "training/use/published_weights.h"

namespace dtrain::test {

class RecordedModel {
 public:
  explicit RecordedModel(const std::string& name);

  /// A tensor of the recording by its name there.
  Tensor read(const std::string& name) const;
  /// Its tensors with that prefix ("weight/", "gradient/"), which their names here do not have.
  NamedTensors all(const std::string& prefix) const;
  /// Writes config.json and `tensors` as the folder `name` of `dir`; returns it.
  std::filesystem::path publish(const TempDir& dir, const std::string& name,
                                const NamedTensors& tensors) const;

  /// config.json as a model of it.
  const TextModel& model() const noexcept { return model_; }
  const std::shared_ptr<Device>& device() const noexcept { return device_; }

 private:
  std::filesystem::path config_;
  TensorFiles files_;
  TextModel model_;
  std::shared_ptr<Device> device_;
};

/// The largest difference, relative to the largest number that is expected.
double relative_difference(const Tensor& got, const Tensor& expected);

}  // namespace dtrain::test
