#include "parallel/strategy.h"

#include "parallel/span_of.h"

namespace dtrain {

void start_backward(const Tensor& loss, double weight, const GradScaler* scaler) {
  if (scaler != nullptr) return loss.backward(scaler->scale_seed(weight));
  weight == 1.0 ? loss.backward() : loss.backward(Tensor::full({}, weight, loss.shared_device()));
}

void agree_on_overflow(const UpdateGuard& guard, Communicator& ranks, const Deadline& deadline) {
  if (ranks.size() == 1) return;
  ranks.all_reduce(span_of(guard.found()), ReduceOp::max, "overflow")->wait(deadline);
  guard.found().mark_modified();
}

}  // namespace dtrain
