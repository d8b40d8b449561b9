#include "runtime/nn/embedding.h"

#include "runtime/autograd/ops/embedding.h"
#include "runtime/base/error.h"

namespace dtrain {

Embedding::Embedding(std::int64_t count, std::int64_t width, Generator& generator,
                     const std::shared_ptr<Device>& device, EmbeddingOptions options)
    : options_(options) {
  const auto padding = options.padding_index;
  if (count < 1 || width < 1 || (padding && (*padding < 0 || *padding >= count))) {
    throw UsageError("Embedding: expected at least one row and column and a padding index inside, got " +
                     std::to_string(count) + " x " + std::to_string(width) +
                     (padding ? " and " + std::to_string(*padding) : ""));
  }
  Tensor weight = Tensor::randn({count, width}, generator, device);
  if (padding) weight.select(0, *padding).fill(0);
  weight_ = add_parameter("weight", weight);
}

std::string Embedding::extra_repr() const {
  const std::string padding =
      options_.padding_index ? ", padding_idx=" + std::to_string(*options_.padding_index) : "";
  return std::to_string(weight_.size(0)) + ", " + std::to_string(weight_.size(1)) + padding;
}

Tensor Embedding::forward(const Tensor& index) { return embedding(index, weight_, options_.padding_index); }

}  // namespace dtrain
