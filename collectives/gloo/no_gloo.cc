// Stands in for the gloo backend in builds without Gloo.
#include "collectives/backends.h"
#include "runtime/base/error.h"

namespace dtrain {

bool gloo_is_built() noexcept { return false; }

std::unique_ptr<Communicator> make_gloo_communicator(const Bootstrap&, Log&) {
  throw UsageError(
      "backend gloo: not in this build; install libgloo-dev and configure with -DDTRAIN_WITH_GLOO=ON");
}

}  // namespace dtrain
