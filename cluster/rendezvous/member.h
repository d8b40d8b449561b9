// A launcher's slot at the rendezvous: joins, keeps the lease, hears the events, says its words.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "cluster/net/endpoint.h"
#include "cluster/net/token.h"
#include "cluster/rendezvous/protocol.h"
#include "cluster/rendezvous/server.h"
#include "runtime/base/clock.h"

namespace dtrain::rendezvous {

struct MemberOptions {
  Endpoint server;
  std::optional<Token> token;  ///< none is allowed on loopback only
  bool insecure = false;       ///< allow none elsewhere too
  std::string job;             ///< must be the leader's; at most 128 bytes
  Duration beat = std::chrono::seconds(1);
  Duration lease = std::chrono::seconds(4);
  /// As SessionTimes::join.
  Duration join_timeout = std::chrono::seconds(600);
  /// Called from the member's thread each time the leader has answered: this node may work until then,
  /// in boot_clock()'s time.
  std::function<void(TimePoint ends)> on_lease;
  /// The launcher's own, where it may lead the job or follow another leader; borrowed.
  Leadership* leadership = nullptr;
  /// This launcher has been elected, and leads at NodeOffer::standby from now on. Called from the member's
  /// thread.
  std::function<void(Succession)> on_elected;
};

class Member {
 public:
  /// Connects (trying again until `deadline`, the server may come later) and offers this node. Throws as
  /// StoreClient's constructor. Starts one thread that beats.
  Member(const MemberOptions& options, const NodeOffer& offer, const Deadline& deadline);
  /// Says that this node is going; without an Ended before, that counts as a lost launcher.
  ~Member();
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;

  /// The next event in order; nothing when `deadline` passes first. A connection that breaks is
  /// LeaseLost. To be called from one thread.
  std::optional<LeaderEvent> next(const Deadline& deadline);
  /// Readable while next() has something; for poll().
  int fd() const noexcept;

  /// Tells the leader. May be called from any thread, also during next(). A lost connection is not an
  /// error here: next() tells.
  void say(const NodeEvent& event);

  /// This node is about to leave: the leader hears no heartbeat any more, only words. Whether anything
  /// is still at work here is then known with the lease at the latest. From any thread.
  void hush();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace dtrain::rendezvous
