// Samples that are in memory already: arrays whose first dimension counts samples.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/data/source.h"

namespace dtrain {

/// One field of all samples.
struct TensorField {
  std::string name;
  View view;                                     ///< [N, …the field's shape] of host memory, any strides
  std::shared_ptr<const void> owner;             ///< keeps the memory; it must not change meanwhile
  std::int64_t values = 0;                       ///< as Field::values
  std::vector<std::string> columns = {};         ///< as Field::columns
  std::vector<std::string> value_names = {};     ///< as Field::value_names
  std::vector<float> mean = {}, deviation = {};  ///< as Field's
  std::vector<float> fill = {};                  ///< as Field's
  std::string length_field = {};                 ///< as Field's: the first rows count
  double padding_value = 0;                      ///< as Field's
};

/// N samples made of tensors' rows. It takes views and not tensors, so that anything in host memory will do:
/// vectors, mapped files, tensors of the CPU.
///
///     const auto x = std::make_shared<const std::vector<float>>(1000 * 4);
///     const View rows{const_cast<float*>(x->data()), DType::f32, {1000, 4}, {4, 1}};
///     const TensorSource source("noise", {{"x", rows, x}});
///     const auto y = std::make_shared<const Tensor>(targets);  // f32 [1000, 1], on the CPU
///     const TensorSource pairs("pairs", {{"x", rows, x}, {"y", y->view(), y}});
class TensorSource final : public Source {
 public:
  /// Throws UsageError, naming `name` and the field, where a view has no dimension or another first extent
  /// than the others, where there is no memory, and for fields that are not well-formed (check_fields).
  TensorSource(std::string name, std::vector<TensorField> tensors);

  std::string name() const override { return name_; }
  std::int64_t size() const noexcept override { return tensors_.front().view.shape[0]; }
  std::span<const Field> fields() const noexcept override { return fields_; }
  void read(std::int64_t index, std::span<const View> outputs, KeyedGenerator& generator) const override;
  bool in_memory() const noexcept override { return true; }

 private:
  std::string name_;
  std::vector<TensorField> tensors_;
  std::vector<Field> fields_;
};

}  // namespace dtrain
