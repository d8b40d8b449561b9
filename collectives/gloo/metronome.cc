#include "collectives/gloo/metronome.h"

#include "collectives/p2p/transport.h"
#include "runtime/base/blocked_signals.h"

namespace dtrain {

Metronome::Metronome() {
  const AllSignalsBlocked for_the_thread;
  thread_ = std::thread([this] { run(); });
}

Metronome::~Metronome() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  stop_.notify_one();
  thread_.join();
}

void Metronome::run() noexcept {
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

Metronome::Beat::Beat(Metronome& metronome, gloo::transport::UnboundBuffer& buffer, Waits waits)
    : metronome_(metronome) {
  const std::lock_guard lock(metronome_.mutex_);
  metronome_.buffer_ = &buffer;
  metronome_.waits_ = waits;
}

Metronome::Beat::~Beat() {
  const std::lock_guard lock(metronome_.mutex_);
  metronome_.buffer_ = nullptr;
}

}  // namespace dtrain
