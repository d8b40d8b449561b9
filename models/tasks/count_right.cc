#include "models/tasks/count_right.h"

#include "runtime/autograd/ops.h"

namespace dtrain {

std::int64_t count_right(const Tensor& logits, const Tensor& target) {
  const auto guesses = argmax(logits).to_vector<std::int64_t>(), right = target.to_vector<std::int64_t>();
  std::int64_t count = 0;
  for (std::size_t i = 0; i < guesses.size(); ++i) count += guesses[i] == right[i] ? 1 : 0;
  return count;
}

}  // namespace dtrain
