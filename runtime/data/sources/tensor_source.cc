#include "runtime/data/sources/tensor_source.h"

#include <fmt/format.h>

#include "runtime/base/error.h"
#include "runtime/data/formats/elements.h"

namespace dtrain {

TensorSource::TensorSource(std::string name, std::vector<TensorField> tensors)
    : name_(std::move(name)), tensors_(std::move(tensors)) {
  for (const TensorField& tensor : tensors_) {
    const View& view = tensor.view;
    if (view.rank() == 0 || view.shape[0] != tensors_.front().view.shape[0]) {
      throw UsageError(
          fmt::format("{}: expected tensors of the same first extent, the samples; {} is {}, {} is {}", name_,
                      tensors_.front().name, tensors_.front().view.shape.to_string(), tensor.name,
                      view.shape.to_string()));
    }
    if (view.data == nullptr && view.numel() > 0)
      throw UsageError(fmt::format("{}: expected memory for {}, got a null pointer", name_, tensor.name));
    fields_.push_back({.name = tensor.name,
                       .dtype = view.dtype,
                       .shape = Dims(std::span(view.shape.begin() + 1, view.shape.end())),
                       .values = tensor.values,
                       .columns = tensor.columns,
                       .value_names = tensor.value_names,
                       .mean = tensor.mean,
                       .deviation = tensor.deviation,
                       .fill = tensor.fill,
                       .length_field = tensor.length_field,
                       .padding_value = tensor.padding_value});
  }
  check_fields(*this);
}

void TensorSource::read(std::int64_t index, std::span<const View> outputs, KeyedGenerator&) const {
  for (std::size_t i = 0; i < tensors_.size(); ++i)
    copy_elements(sample_of(tensors_[i].view, index), outputs[i]);
}

}  // namespace dtrain
