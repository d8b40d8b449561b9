#include "parallel/sync/local_sgd_sync.h"

#include "parallel/sync/average.h"
#include "parallel/sync/used_parameters.h"
#include "runtime/base/error.h"
#include "runtime/nn/trainable.h"

namespace dtrain {

LocalSgdSync::LocalSgdSync(const StrategyContext& context, std::int64_t sync_every)
    : GradientSync(context), sync_every_(sync_every) {
  equal_gradients_ = false;
  if (sync_every < 1) {
    throw UsageError("local SGD: expected parameters to be averaged after 1 step or more, got " +
                     std::to_string(sync_every));
  }
}

void LocalSgdSync::attach(const SharedNetwork& shared) {
  if (shared.is_scaled) {
    throw UsageError(
        "local SGD: expected float32 or bfloat16, got float16, whose loss scaling would differ among the "
        "ranks");
  }
  GradientSync::attach(shared);
}

void LocalSgdSync::finish(const Deadline& deadline) {
  complete_gradients(trainable_parameters(network()), dp_group(), deadline);
}

void LocalSgdSync::take_update(bool exchange, const Deadline& deadline) {
  if (!exchange || ++since_ < sync_every_) return;
  const PhaseScope phase = context_.timer.phase(Phase::communication);
  average_parameters(deadline);
}

void LocalSgdSync::average_parameters(const Deadline& deadline) {
  since_ = 0;
  ++averages_;
  average(trainable_parameters(network()), dp_group(), deadline);
}

// Every rank has taken as many steps since the last average, so all of them come here alike.
void LocalSgdSync::sync_state(const NamedTensors& state, const Deadline& deadline) {
  if (since_ > 0) average_parameters(deadline);
  average(floating(state), dp_group(), deadline);
  GradientSync::sync_state(state, deadline);
}

}  // namespace dtrain
