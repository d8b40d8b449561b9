// A table of vectors, looked up by number.
#pragma once

#include <optional>

#include "runtime/nn/module.h"
#include "runtime/tensor/defaults.h"

namespace dtrain {

struct EmbeddingOptions {
  /// The row that stands for padding: it starts at 0 and gets no gradient.
  std::optional<std::int64_t> padding_index = std::nullopt;
};

/// index, i64 or i32 of any shape → […, width]. Parameter: weight [count, width], drawn from the normal
/// distribution. The kernel throws UsageError for an index outside.
class Embedding : public Module {
 public:
  Embedding(std::int64_t count, std::int64_t width, Generator& generator = default_generator(),
            const std::shared_ptr<Device>& device = default_device(), EmbeddingOptions options = {});
  Tensor forward(const Tensor& index) override;
  std::string extra_repr() const override;
  const Tensor& weight() const noexcept { return weight_; }

 private:
  Tensor weight_;
  EmbeddingOptions options_;
};

}  // namespace dtrain
