// Interrupts a thread that waits in Gloo, which can only wait for a message, its own time-out (which kills
// the whole context) or an abort from another thread. This is that thread.
#pragma once

#include <gloo/transport/unbound_buffer.h>

#include <condition_variable>
#include <mutex>
#include <thread>

namespace dtrain {

class WaitInterrupter {
 public:
  enum class Waits { to_send, to_receive };

  WaitInterrupter();
  ~WaitInterrupter();
  WaitInterrupter(const WaitInterrupter&) = delete;
  WaitInterrupter& operator=(const WaitInterrupter&) = delete;

  /// While it lives, every wait on `buffer` ends (returning false) at the next interruption.
  class Interrupted {
   public:
    Interrupted(WaitInterrupter& interrupter, gloo::transport::UnboundBuffer& buffer, Waits waits);
    ~Interrupted();
    Interrupted(const Interrupted&) = delete;
    Interrupted& operator=(const Interrupted&) = delete;

   private:
    WaitInterrupter& interrupter_;
  };

 private:
  void run() noexcept;

  std::mutex mutex_;
  std::condition_variable stop_;
  bool stopping_ = false;
  gloo::transport::UnboundBuffer* buffer_ = nullptr;
  Waits waits_ = Waits::to_receive;
  std::thread thread_;
};

}  // namespace dtrain
