#include "collectives/gloo/wait_interrupter.h"

#include "collectives/p2p/transport.h"
#include "runtime/base/blocked_signals.h"
#include "runtime/base/start_thread.h"

namespace dtrain {

WaitInterrupter::WaitInterrupter() {
  const AllSignalsBlocked for_the_thread;
  thread_ = start_thread("dtrain-gloo", [this] { run(); });
}

WaitInterrupter::~WaitInterrupter() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  stop_.notify_one();
  thread_.join();
}

void WaitInterrupter::run() noexcept {
  std::unique_lock lock(mutex_);
  while (!stop_.wait_for(lock, p2p::kTickEvery, [&] { return stopping_; })) {
    if (buffer_ == nullptr) continue;
    if (waits_ == Waits::to_receive) {
      buffer_->abortWaitRecv();
    } else {
      buffer_->abortWaitSend();
    }
  }
}

WaitInterrupter::Interrupted::Interrupted(WaitInterrupter& interrupter,
                                          gloo::transport::UnboundBuffer& buffer, Waits waits)
    : interrupter_(interrupter) {
  const std::lock_guard lock(interrupter_.mutex_);
  interrupter_.buffer_ = &buffer;
  interrupter_.waits_ = waits;
}

WaitInterrupter::Interrupted::~Interrupted() {
  const std::lock_guard lock(interrupter_.mutex_);
  interrupter_.buffer_ = nullptr;
}

}  // namespace dtrain
