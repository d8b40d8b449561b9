// Shows a task whose network is split among ranks as an ordinary task.
#pragma once

#include <memory>

#include "parallel/tensor/tensor_parallel_group.h"
#include "training/task.h"

namespace dtrain {

/// `task` is borrowed. Every rank of the group calls it alike.
class TensorParallelTask final : public Task {
 public:
  TensorParallelTask(const Task& task, const TensorParallelGroup& tp_group)
      : task_(task), tp_group_(tp_group) {}

  std::string name() const override { return task_.name(); }
  Splits open(const DataRequest& request) const override { return task_.open(request); }
  std::shared_ptr<const Source> for_training(std::shared_ptr<const Source> train) const override {
    return task_.for_training(std::move(train));
  }
  std::unique_ptr<Module> build(std::span<const Field> fields, Generator& generator,
                                const std::shared_ptr<Device>& device) const override {
    return task_.build_tensor_parallel(fields, generator, device, tp_group_);
  }
  std::vector<NamedGroup> parameter_groups() const override { return task_.parameter_groups(); }
  OptimizerFactory make_optimizer() const override { return task_.make_optimizer(); }
  LrFactor lr_factor() const override { return task_.lr_factor(); }
  Tensors inputs(const BatchTensors& batch) const override { return task_.inputs(batch); }
  Tensor loss(const Tensors& outputs, const BatchTensors& batch) const override {
    return task_.loss_tensor_parallel(outputs, batch, tp_group_);
  }
  std::optional<PublishedFormat> published_format(std::span<const Field> fields) const override {
    return task_.published_format(fields);
  }
  bool shows() const override { return task_.shows(); }
  std::string show(const ShowRequest& request) const override { return task_.show(request); }
  OutputKind output_kind() const override { return task_.output_kind(); }
  double units(const Batch& batch) const override { return task_.units(batch); }
  bool units_vary(std::span<const Field> fields) const override { return task_.units_vary(fields); }
  std::size_t sum_count() const override { return task_.sum_count(); }
  void add_up(const Tensors& outputs, const BatchTensors& batch, double units,
              std::span<double> sums) const override {
    task_.add_up(outputs, batch, units, sums);
  }
  Evaluation evaluation(std::span<const double> sums, std::int64_t samples) const override {
    return task_.evaluation(sums, samples);
  }
  void add_confusion(const Confusion& confusion, Evaluation& found) const override {
    task_.add_confusion(confusion, found);
  }
  const Field* predicted_field(std::span<const Field> fields) const override {
    return task_.predicted_field(fields);
  }
  std::size_t kept_count(std::span<const Field> fields) const override { return task_.kept_count(fields); }
  Tensor keep(const Tensors& outputs, const BatchTensors& batch,
              std::span<const Field> fields) const override {
    return task_.keep(outputs, batch, fields);
  }
  void add_kept(std::span<const double> kept, Evaluation& found) const override {
    task_.add_kept(kept, found);
  }

 private:
  const Task& task_;
  TensorParallelGroup tp_group_;
};

}  // namespace dtrain
