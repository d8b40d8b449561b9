// The launcher's line to the other nodes' launchers: a child process that owns the connection, the
// heartbeats and, on the first node, the rendezvous store. See docs/decisions/010-rendezvous.md.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>

#include "cluster/rendezvous/coordinator.h"
#include "cluster/rendezvous/member.h"
#include "launcher/nodes/line.h"
#include "launcher/subreaper/lease.h"
#include "runtime/base/fd.h"

namespace dtrain::launcher {

struct LinkSettings {
  rendezvous::MemberOptions member;
  rendezvous::NodeOffer offer;
  rendezvous::CoordinatorOptions coordinator;
  bool hosts = false;                        ///< this node hosts the rendezvous from the start
  std::optional<std::uint16_t> listen_port;  ///< with hosts: where (address: member.server)
  /// Another launcher may lead the job when the one that does is lost, and this one stands by for that.
  bool succession = false;
  /// Until the rendezvous is reached; then Refused says what was tried. Before, Waiting says so.
  Duration connect_timeout = std::chrono::seconds(600);
  /// Called in the launcher when the link was killed and another one has taken its place: what happened.
  std::function<void(const std::string& what)> on_restart;
};

/// To be made before any thread and any other child; a link that takes the place of another is forked beside
/// the launcher's threads, whose locks it does not touch. The link renews the node's lease while the others
/// answer, and revokes it when they have gone on without this node, when its launcher ends, or when that does
/// not read for kDeaf what concerns its workers. It ends by itself when the launcher does, and tells the
/// others once nothing is at work here any more. One that is killed is started again and goes on where it
/// was, at the same seat, and with the same office where it leads; who dies again and again is LeaseLost.
class Link {
 public:
  /// Binds the rendezvous socket in this process when this node hosts it (so a taken port is an error here,
  /// with its owner named), then forks. Throws as listen_on, and SystemError.
  explicit Link(const LinkSettings& settings);
  /// Closes the line and reaps the link, which says goodbye to the others first (a second at most).
  ~Link();
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  /// Readable when there is news; for poll().
  int fd() const noexcept { return line_.fd(); }
  pid_t pid() const noexcept { return pid_; }
  /// Where this node hosts the rendezvous; 0 where it does not.
  std::uint16_t port() const noexcept { return port_; }
  /// The next piece of news, if one is there. Never blocks. After LeaseLost, Refused or Over nothing more
  /// comes.
  std::optional<rendezvous::News> take();
  /// Never blocks.
  void say(const rendezvous::Word& word);
  /// It stands still: its end is not waited for.
  void put_down() noexcept { put_down_ = true; }
  /// What the node's workers live by.
  Lease& lease() noexcept { return lease_; }

  static constexpr Duration kDeaf = std::chrono::seconds(5);
  /// One that has been started again so often within kOften is not once more.
  static constexpr std::size_t kStarts = 5;
  static constexpr Duration kOften = std::chrono::seconds(60);

 private:
  void start();
  bool part();
  std::string start_again();
  std::string reap();
  void forget_taken();

  LinkSettings settings_;
  Lease lease_;
  rendezvous::SeatMemory memory_;
  Line line_{UniqueFd()};
  pid_t pid_ = -1;
  std::uint16_t port_ = 0;
  bool over_ = false;  // nothing more comes
  bool put_down_ = false;
  std::uint64_t said_ = 0;           // words
  std::deque<std::string> untaken_;  // the last of these, encoded
  std::deque<TimePoint> starts_;     // again, lately
};

}  // namespace dtrain::launcher
