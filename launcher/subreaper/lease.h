// A node's right to have workers, in memory that launcher, node agent, subreaper, guard and workers share.
// The node agent extends it as long as the other nodes answer; subreaper and guard end the workers when it
// runs out, whatever the launcher does, and dtrain's own workers write nothing any more. See
// docs/decisions/010-rendezvous.md.
#pragma once

#include <atomic>
#include <cstdint>

#include "cluster/rendezvous/boot_clock.h"
#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/files/write_permit.h"

namespace dtrain::launcher {

/// To be made before the processes that share it are forked. Every call may be made in any of them.
class Lease {
 public:
  /// Unlimited until renew() is called for the first time. `clock` must outlive it. Throws SystemError.
  explicit Lease(const Clock& clock = rendezvous::boot_clock());
  ~Lease();
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  /// Lasts until then. Without effect once revoked.
  void renew(TimePoint until) noexcept;
  /// Over, for good.
  void revoke() noexcept;
  bool over() const noexcept;
  bool revoked() const noexcept;
  /// When it runs out, by its clock; TimePoint::max() while unlimited.
  TimePoint ends() const noexcept;
  /// Readable once revoked; to be polled, not read, and kept open by those who share the lease.
  int revoked_fd() const noexcept { return revoked_.get(); }
  /// What workers look at (kLeaseVariable): they can read it, and not write.
  int readable_fd() const noexcept { return readable_.get(); }

  /// A guard is about to be made, and: nothing is left below it.
  void begin_work() noexcept;
  void end_work() noexcept;
  /// How often begin_work() was called.
  int groups_begun() const noexcept;
  /// No workers, nor anything they left, is alive on this node.
  bool idle() const noexcept;

 private:
  struct Page {
    LeaseWord ends;
    std::atomic<std::int32_t> groups, begun;
  };

  const Clock& clock_;
  UniqueFd revoked_, readable_;
  Page* page_ = nullptr;
};

/// One process's eye on a lease: two descriptors for poll().
class LeaseWatch {
 public:
  /// nullptr: a job of one node, never over. Throws SystemError.
  explicit LeaseWatch(const Lease* lease);

  /// To poll for POLLIN; -1 without a lease.
  int timer_fd() const noexcept { return timer_.get(); }
  int revoked_fd() const noexcept { return lease_ == nullptr ? -1 : lease_->revoked_fd(); }
  /// To be called whenever one of them is readable: whether the lease is over; sets the timer again.
  bool over();

 private:
  const Lease* lease_;
  UniqueFd timer_;
};

}  // namespace dtrain::launcher
