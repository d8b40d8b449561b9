// What a running group hears from the other nodes, and what it tells them. The group knows no rounds and no
// network; nodes.cc stands behind this.
#pragma once

#include "launcher/output/report.h"
#include "launcher/subreaper/lease.h"
#include "runtime/base/clock.h"

namespace dtrain::launcher {

class RoundLink {
 public:
  /// What the other nodes want of this one's workers.
  struct Order {
    enum class Kind {
      none,
      end,     ///< the round is over: SIGTERM, and SIGKILL after the grace, or at once when `hurry`
      signal,  ///< somebody signalled the job: pass this one on, unless that has been done
      kill,    ///< end everything at once, whatever it is doing
    } kind = Kind::none;
    int signal = 0;
    bool hurry = false;  ///< with `end`: only a worker that is writing a checkpoint is waited for
  };

  virtual ~RoundLink() = default;
  /// Readable when there may be an order.
  virtual int fd() const = 0;
  /// The next order; none when there is none for now.
  virtual Order take() = 0;
  /// A worker of this node failed `age` ago; to be called at once, while the others still run. A later call
  /// corrects an earlier one. `consequence`: it only lost a peer.
  virtual void failed(const WorkerFailure& failure, bool consequence, Duration age) = 0;
  /// This launcher got a signal that ends the job, and has passed it on to its own workers.
  virtual void signalled(int signal) = 0;
  /// This node's right to have workers; nullptr: it has it for ever.
  virtual Lease* lease() = 0;

 protected:
  RoundLink() = default;
  RoundLink(const RoundLink&) = default;
  RoundLink& operator=(const RoundLink&) = default;
};

}  // namespace dtrain::launcher
