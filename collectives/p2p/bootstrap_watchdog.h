// Supervises the messages by which a group comes together, before there is a call to supervise.
#pragma once

#include <string>

#include "collectives/p2p/transport.h"
#include "runtime/base/error.h"

namespace dtrain::p2p {

/// Throws PeerError when the others do not come in time.
class BootstrapWatchdog final : public Watchdog {
 public:
  /// `backend` is named in the error.
  BootstrapWatchdog(std::string backend, const Deadline& deadline)
      : backend_(std::move(backend)), deadline_(deadline) {}

  void tick() override {
    if (!deadline_.expired()) return;
    PeerFailure failure;
    failure.operation = "connect";
    throw PeerError(backend_ + " group: the other ranks did not join within the timeout", std::move(failure));
  }

 private:
  const std::string backend_;
  const Deadline deadline_;
};

}  // namespace dtrain::p2p
