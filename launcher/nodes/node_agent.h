// The launcher's line to the other nodes' launchers: a child process that owns the connection, the
// heartbeats and, on the first node, the rendezvous store. See docs/decisions/010-rendezvous.md.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "cluster/rendezvous/member.h"
#include "cluster/rendezvous/server.h"
#include "launcher/nodes/ipc_channel.h"
#include "launcher/subreaper/lease.h"
#include "runtime/base/fd.h"

namespace dtrain::launcher {

struct NodeAgentSettings {
  rendezvous::MemberOptions member;
  rendezvous::NodeOffer offer;
  rendezvous::ServerOptions rendezvous;
  bool hosts = false;                        ///< this node hosts the rendezvous from the start
  std::optional<std::uint16_t> listen_port;  ///< with hosts: where (address: member.server)
  /// Another launcher may lead the job when the one that does is lost, and this one stands by for that.
  bool succession = false;
  /// Until the rendezvous is reached; then Refused says what was tried. Before, Waiting says so.
  Duration connect_timeout = std::chrono::seconds(600);
};

/// To be made before any thread and any other child. The node agent renews the node's lease while the others
/// answer, and revokes it when they have continued without this node, when its launcher ends, or when that
/// does not read for kDeaf what concerns its workers. It ends by itself when the launcher does, and tells the
/// others once nothing is at work here any more. It is a part of the launcher: where it is killed this node
/// is lost (LeaseLost), as where the launcher itself is. See
/// docs/decisions/051-a-killed-node agent-is-a-lost-node.md.
class NodeAgent {
 public:
  /// Binds the rendezvous socket in this process when this node hosts it (so a taken port is an error here,
  /// with its owner named), then forks. Throws as listen_on, and SystemError.
  explicit NodeAgent(const NodeAgentSettings& settings);
  /// Closes the channel and reaps the node agent, which says goodbye to the others first (a second at most).
  ~NodeAgent();
  NodeAgent(const NodeAgent&) = delete;
  NodeAgent& operator=(const NodeAgent&) = delete;

  /// Readable when there is an event; for poll().
  int fd() const noexcept { return channel_.fd(); }
  pid_t pid() const noexcept { return pid_; }
  /// Where this node hosts the rendezvous; 0 where it does not.
  std::uint16_t port() const noexcept { return port_; }
  /// The next event, if one is there. Never blocks. After LeaseLost, Refused or Over nothing more
  /// comes.
  std::optional<rendezvous::LeaderEvent> take();
  /// Never blocks.
  void say(const rendezvous::NodeEvent& event);
  /// It stands still: its end is not waited for.
  void put_down() noexcept { put_down_ = true; }
  /// What the node's workers live by.
  Lease& lease() noexcept { return lease_; }

  static constexpr Duration kDeaf = std::chrono::seconds(5);

 private:
  std::string reap();

  Lease lease_;
  IpcChannel channel_{UniqueFd()};
  pid_t pid_ = -1;
  std::uint16_t port_ = 0;
  bool over_ = false;  // nothing more comes
  bool put_down_ = false;
};

}  // namespace dtrain::launcher
