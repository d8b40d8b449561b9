// The seams are interfaces without defaults: a backend that leaves a collective out does not build.
// refused: cannot declare variable|variable type .* is an abstract class
#include "collectives/communicator.h"

namespace {
#ifdef MUST_NOT_COMPILE
class Done final : public dtrain::Work {
  void wait(const dtrain::Deadline&) override {}
};
#else
class Done final : public dtrain::Work {
  void wait(const dtrain::Deadline&) override {}
  bool done() noexcept override { return true; }
};
#endif
}  // namespace

int main() {
  Done work;
  dtrain::Work& seam = work;
  return seam.done() ? 0 : 1;
}
