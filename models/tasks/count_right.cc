#include "models/tasks/count_right.h"

#include <algorithm>

#include "runtime/autograd/ops.h"
#include "runtime/autograd/ops/indexing.h"

namespace dtrain {

std::int64_t count_right(const Tensor& logits, const Tensor& target) {
  const auto guesses = argmax(logits).to_vector<std::int64_t>(), right = target.to_vector<std::int64_t>();
  std::int64_t count = 0;
  for (std::size_t i = 0; i < guesses.size(); ++i) count += guesses[i] == right[i] ? 1 : 0;
  return count;
}

std::int64_t count_among_first(const Tensor& logits, const Tensor& target, std::int64_t count) {
  const Tensor asked = gather(logits, 1, target.unsqueeze(1));               // [N, 1]
  const Tensor behind = sum(less_equal(logits, asked).to(DType::f32), {1});  // itself, too
  const auto ranks = behind.to_vector<float>();
  return std::ranges::count_if(
      ranks, [&](float number) { return logits.size(1) - static_cast<std::int64_t>(number) < count; });
}

}  // namespace dtrain
