#include "models/tasks/training_cost.h"

namespace dtrain {

TrainingCost training_cost(const TransformerShape& shape, std::int64_t tokens) {
  const HeadShape heads = shape.head_shape();
  const std::int64_t attention = heads.heads * heads.head_width;
  const std::int64_t matrices = shape.feed_forward == FeedForward::swiglu ? 3 : 2;
  const std::int64_t block = shape.width * (heads.fused_width() + attention + matrices * shape.inner_width());
  const auto weights = static_cast<double>(shape.layers * block + shape.width * shape.vocabulary);
  const double scores = static_cast<double>(shape.layers * attention) * static_cast<double>(tokens);
  const double each = shape.lora ? 4 : 6;
  return {.tokens = tokens,
          .flops = static_cast<double>(tokens) * (each * weights + 12 * scores),
          .formula = shape.lora ? "4 N + 12 L H Q T a token" : "6 N + 12 L H Q T a token"};
}

}  // namespace dtrain
