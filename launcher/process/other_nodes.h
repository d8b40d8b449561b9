// What a running group hears from the other nodes, and what it tells them. The group knows no rounds and no
// network; nodes.cc stands behind this.
#pragma once

#include "launcher/output/report.h"
#include "launcher/subreaper/lease.h"
#include "launcher/subreaper/protocol.h"
#include "runtime/base/clock.h"

namespace dtrain::launcher {

class OtherNodes {
 public:
  virtual ~OtherNodes() = default;
  /// Readable when there may be a command.
  virtual int fd() const = 0;
  /// What the others want of this node's workers: Command::end, signal (unless it has been passed on) or
  /// kill_all; none when there is nothing for now.
  virtual Command take() = 0;
  /// A worker of this node failed `age` ago; to be called at once, while the others still run. A later call
  /// corrects an earlier one.
  virtual void failed(const Failure& failure, Duration age) = 0;
  /// This launcher got a signal that ends the job, and has passed it on to its own workers.
  virtual void signalled(int signal) = 0;
  /// This node's right to have workers; nullptr: it always has it.
  virtual Lease* lease() = 0;

 protected:
  OtherNodes() = default;
  OtherNodes(const OtherNodes&) = default;
  OtherNodes& operator=(const OtherNodes&) = default;
};

}  // namespace dtrain::launcher
