#include "runtime/autograd/grad_mode.h"

namespace dtrain {
namespace {

// The one piece of per-thread state of the runtime: it has to reach every operation between the guard and
// its end, through code that does not know about it.
thread_local bool recorded = true;

}  // namespace

bool grad_enabled() noexcept { return recorded; }

GradMode::GradMode(bool enabled) noexcept : before_(recorded) { recorded = enabled; }

GradMode::~GradMode() { recorded = before_; }

}  // namespace dtrain
