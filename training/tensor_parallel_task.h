// A task whose network is divided among ranks, as the task that it is for everybody else.
#pragma once

#include <memory>

#include "parallel/tensor/tensor_parallel_group.h"
#include "training/task.h"

namespace dtrain {

/// `task` is borrowed. Every rank of the division calls it alike.
class DividedTask final : public Task {
 public:
  DividedTask(const Task& task, const Division& division) : task_(task), division_(division) {}

  std::string name() const override { return task_.name(); }
  Splits open(const DataRequest& request) const override { return task_.open(request); }
  std::unique_ptr<Module> build(std::span<const Field> fields, Generator& generator,
                                const std::shared_ptr<Device>& device) const override {
    return task_.build_divided(fields, generator, device, division_);
  }
  Tensors inputs(const BatchTensors& batch) const override { return task_.inputs(batch); }
  Tensor loss(const Tensors& outputs, const BatchTensors& batch) const override {
    return task_.loss_divided(outputs, batch, division_);
  }
  OutputKind output_kind() const override { return task_.output_kind(); }
  double units(const Batch& batch) const override { return task_.units(batch); }
  bool units_vary() const override { return task_.units_vary(); }
  std::size_t sum_count() const override { return task_.sum_count(); }
  void add_up(const Tensors& outputs, const BatchTensors& batch, double units,
              std::span<double> sums) const override {
    task_.add_up(outputs, batch, units, sums);
  }
  Evaluation evaluation(std::span<const double> sums, std::int64_t samples) const override {
    return task_.evaluation(sums, samples);
  }

 private:
  const Task& task_;
  Division division_;
};

}  // namespace dtrain
