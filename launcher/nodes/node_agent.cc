// Both ends of the channel: in the launcher a socket, in the node agent's process a member, the rendezvous on
// the first node, and one loop.
#include "launcher/nodes/node_agent.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <fmt/format.h>

#include <exception>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "cluster/rendezvous/messages.h"
#include "launcher/nodes/reach.h"
#include "launcher/plan/options.h"
#include "launcher/system/forked.h"
#include "runtime/base/check.h"
#include "runtime/base/start_thread.h"

namespace dtrain::launcher {
namespace {

using rendezvous::LeaderEvent;
using rendezvous::NodeEvent;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr char kName[] = "dtrain-agent";
constexpr std::string_view kWho = "the node agent, this launcher's process for the network,";
constexpr std::string_view kGoodbye = "bye";
// For a node agent that was killed at the end, too.
constexpr Duration kOrderlyEnd = seconds(3);
// The launcher was killed, but others on this rendezvous still clear up.
constexpr Duration kDisorderlyEnd = seconds(5);
// From the leader of the others until its workers are known to have ended: without that another one must be
// elected, which takes longer than a node's lease.
constexpr Duration kLeadersEnd = seconds(2);
constexpr Duration kReap = kDisorderlyEnd + seconds(2);
constexpr Duration kDies = seconds(2);  // of SIGKILL
// Whether the launcher reads, whether its workers have ended.
constexpr Duration kLookAgain = milliseconds(500), kLookSoon = milliseconds(5);
// From the end of the last worker until the launcher has said so; log files are given 5 s of that.
constexpr Duration kSayEnded = seconds(10);
// For the way to the meeting point.
constexpr Duration kOwnAddress = seconds(3);
constexpr Duration kSayWaiting = milliseconds(4500);

// What the launcher must hear of in time, since its workers are to begin or to end.
bool is_pressing(const LeaderEvent& event) {
  return std::holds_alternative<rendezvous::Forming>(event) ||
         std::holds_alternative<rendezvous::Start>(event) || std::holds_alternative<rendezvous::Stop>(event);
}

// The child. Ends with the process; nothing of the launcher's is destroyed here.
class NodeAgentProcess {
 public:
  NodeAgentProcess(NodeAgentSettings settings, UniqueFd socket, std::optional<Listener> listener,
                   pid_t launcher, Lease& lease)
      : settings_(std::move(settings)),
        channel_(std::move(socket)),
        listener_(std::move(listener)),
        launcher_(launcher),
        lease_(lease) {
    settings_.member.on_lease = [&lease](TimePoint ends) { lease.renew(ends); };
    if (settings_.succession) prepare_succession();
  }

  // Ends the process itself: a thread may still be trying to connect.
  [[noreturn]] void run() noexcept {
    int code = 0;
    try {
      settle_in();
      if (host() && connect()) {
        while (!gone_ && relay()) {
        }
      }
      part();
    } catch (const std::exception&) {
      code = 1;  // the launcher sees the channel end
    }
    ::_exit(code);
  }

 private:
  void settle_in() {
    ::setpgid(0, 0);  // a Ctrl-C on the terminal is the launcher's to handle
    ::prctl(PR_SET_NAME, kName);
    // The end of the channel says the same; this holds even if somebody else has the launcher's end open, and
    // wakes a node agent that was stopped.
    signals_ = block_signals_but_watch({SIGCONT});
    check(Sys{::prctl(PR_SET_PDEATHSIG, SIGCONT)}, "prctl PR_SET_PDEATHSIG");
    gone_ = ::getppid() != launcher_;
    std::vector<int> kept{channel_.fd(), signals_.get(), lease_.revoked_fd()};
    if (listener_) kept.push_back(listener_->fd.get());
    detach_from_all_but(std::move(kept));
    // One connection a launcher.
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) == 0) {
      limit.rlim_cur = limit.rlim_max;
      ::setrlimit(RLIMIT_NOFILE, &limit);
    }
  }

  // False when this node should host the rendezvous and cannot (no token where one is needed).
  bool host() {
    try {
      if (listener_) rendezvous_.emplace(std::move(*listener_), settings_.rendezvous);
      if (settings_.succession) stand_by();
      return true;
    } catch (const std::exception& error) {
      send(rendezvous::Refused{error.what()});
      return false;
    }
  }

  void prepare_succession() {
    std::random_device random;
    while (settings_.offer.instance_id == 0)
      settings_.offer.instance_id = (std::uint64_t{random()} << 32) | random();
    const rendezvous::MemberOptions& member = settings_.member;
    rendezvous::LeadershipOptions options{
        settings_.offer.instance_id, settings_.offer.host, member.lease, member.server, {}};
    options.store.token = member.token;
    options.store.insecure = member.insecure;
    options.store.job = member.job;
    options.store.role = "launcher";
    leadership_.emplace(std::move(options));
    settings_.rendezvous.leadership = settings_.member.leadership = &*leadership_;
    settings_.member.on_elected = [this](rendezvous::Succession succession) {
      rendezvous_->lead(std::move(succession));
    };
  }

  // At the address by which this node reaches the others, and on the port where newcomers look for the job,
  // if that is free here. A node that cannot listen can do without leading.
  void stand_by() {
    if (rendezvous_) {
      settings_.offer.standby = settings_.member.server;
      return;
    }
    const Deadline deadline = Deadline::after(kOwnAddress);
    try {
      const SocketAddress there = resolve(settings_.member.server, deadline).front();
      const std::string own = route_to(there).address;
      std::optional<Listener> listener;
      try {
        // Not where node 0 is about to listen on this very machine.
        listener = listen_on(own, is_own_address(there) ? 0 : settings_.member.server.port, deadline);
      } catch (const SystemError&) {
        listener = listen_on(own, 0, deadline);
      }
      rendezvous_.emplace(std::move(*listener), settings_.rendezvous, true);
      settings_.offer.standby = rendezvous_->endpoint();
    } catch (const Error&) {
      settings_.offer.standby = {};
    }
  }

  // In a thread, since the launcher may end meanwhile. False when there is no member to relay for.
  bool connect() {
    connected_.reset(static_cast<int>(check(Sys{::eventfd(0, EFD_CLOEXEC)}, "eventfd of the node agent")));
    const auto attempt_once = [this] {
      Attempt attempt;
      try {
        attempt.member = std::make_unique<rendezvous::Member>(settings_.member, settings_.offer,
                                                              Deadline::after(settings_.connect_timeout));
      } catch (const std::exception& error) {
        attempt.why = error.what();
      }
      const std::lock_guard lock(mutex_);
      attempt_ = std::move(attempt);
      const std::uint64_t one = 1;
      [[maybe_unused]] const ssize_t written = ::write(connected_.get(), &one, sizeof one);
    };
    try {
      start_thread("dtrain-connect", attempt_once).detach();
    } catch (const SystemError& error) {
      send(rendezvous::Refused{error.what()});
      return false;
    }
    Deadline say_waiting = Deadline::after(kSayWaiting);
    while (!gone_) {
      wait({connected_.get()}, say_waiting);
      const std::lock_guard lock(mutex_);
      if (attempt_) break;
      if (!say_waiting.expired()) continue;
      send(rendezvous::Waiting{{no_answer_from(settings_.member.server, Deadline::after(kOwnAddress))}});
      say_waiting = Deadline::after(seconds(10));
    }
    const std::lock_guard lock(mutex_);
    if (!attempt_) return false;
    member_ = std::move(attempt_->member);
    if (!member_) send(rendezvous::Refused{attempt_->why, true});
    for (const NodeEvent& event : early_) {
      if (member_) member_->say(event);
    }
    return member_ != nullptr;
  }

  // One turn of the loop; false after the last events.
  bool relay() {
    const bool looks = channel_.unread() || round_begun_;
    wait({member_->fd()}, looks ? Deadline::after(kLookAgain) : Deadline::never());
    while (auto event = member_->next(Deadline::after(Duration::zero()))) {
      send(*event);
      if (!is_last(*event)) continue;
      if (!std::holds_alternative<rendezvous::Over>(*event)) lease_.revoke();
      return false;
    }
    if (!stands_still()) return true;
    leave();
    send(
        rendezvous::LeaseLost{"this launcher was stopped or stuck when it was needed; the others continued "
                              "without it"});
    return false;
  }

  // The launcher has not read what concerns its workers, or they have all ended and it does not say so.
  bool stands_still() {
    if (!channel_.unread()) unread_until_.reset();
    const bool ended = round_begun_ && lease_.groups_begun() > *round_begun_ && lease_.idle();
    if (!ended) silent_until_.reset();
    if (ended && !silent_until_) silent_until_ = Deadline::after(kSayEnded);
    return (unread_until_ && unread_until_->expired()) || (silent_until_ && silent_until_->expired());
  }

  // Nothing more may run on this node, and as soon as nothing does, the others need not wait for the lease.
  // Where nobody is left who could tell when that is, they wait from now on. Whether it is known.
  bool leave() {
    lease_.revoke();
    member_->hush();
    const bool succeeded = settings_.succession && rendezvous_ && rendezvous_->leads();
    const Deadline deadline = Deadline::after(succeeded ? kLeadersEnd : kDisorderlyEnd);
    while (!lease_.idle() && !deadline.expired()) std::this_thread::sleep_for(kLookSoon);
    const bool idle = lease_.idle();
    if (idle) member_->say(rendezvous::Gone{});
    member_.reset();
    return idle;
  }

  // Until one of `fds` or the launcher has something to say.
  void wait(std::vector<int> fds, const Deadline& deadline) {
    std::vector<pollfd> waited{
        {channel_.fd(), static_cast<short>(channel_.unsent() ? POLLIN | POLLOUT : POLLIN), 0},
        {signals_.get(), POLLIN, 0}};
    for (const int fd : fds) waited.push_back({fd, POLLIN, 0});
    ::poll(waited.data(), waited.size(), deadline.poll_timeout_ms());
    drain_signals(signals_);
    if (!channel_.flush()) gone_ = true;
    obey();
    if (::getppid() != launcher_) gone_ = true;
  }

  void obey() {
    std::string message;
    IpcChannel::Received received;
    while ((received = channel_.receive(message)) == IpcChannel::Received::message) {
      if (message == kGoodbye) {
        gone_ = orderly_ = true;
        return;
      }
      const auto event = rendezvous::decode_node_event(message);
      if (!event) continue;
      if (std::holds_alternative<rendezvous::Ended>(*event)) round_begun_.reset();
      if (member_)
        member_->say(*event);
      else
        early_.push_back(*event);
    }
    if (received == IpcChannel::Received::gone) gone_ = true;
  }

  void send(const LeaderEvent& event) {
    // Before the launcher can read it and begin one.
    if (std::holds_alternative<rendezvous::Start>(event)) round_begun_ = lease_.groups_begun();
    channel_.send(rendezvous::encode(event));
    if (is_pressing(event) && !unread_until_) unread_until_ = Deadline::after(NodeAgent::kDeaf);
  }

  // The host of the rendezvous stays until the others have heard the end.
  void part() {
    // The last events are on their way; the launcher says goodbye when it has read them.
    while (!gone_) wait({}, Deadline::never());
    const bool idle = !member_ || leave();
    // They follow another one when this one grants nothing any more.
    if (!idle && settings_.succession) return;
    if (rendezvous_) rendezvous_->wait_until_over(Deadline::after(orderly_ ? kOrderlyEnd : kDisorderlyEnd));
  }

  struct Attempt {
    std::unique_ptr<rendezvous::Member> member;
    std::string why;
  };

  NodeAgentSettings settings_;
  IpcChannel channel_;
  UniqueFd signals_;
  std::optional<Listener> listener_;
  pid_t launcher_;
  Lease& lease_;
  std::optional<rendezvous::Leadership> leadership_;
  std::optional<rendezvous::RendezvousServer> rendezvous_;
  std::unique_ptr<rendezvous::Member> member_;
  std::vector<NodeEvent> early_;
  std::optional<Deadline> unread_until_;  // the launcher has pressing events to read
  std::optional<Deadline> silent_until_;  // its workers have ended, as it should say
  std::optional<int> round_begun_;        // groups begun before the round that has not ended
  bool gone_ = false;                     // the launcher
  bool orderly_ = false;                  // it said so
  UniqueFd connected_;                    // the connecting thread's word that it is done
  std::mutex mutex_;                      // guards attempt_
  std::optional<Attempt> attempt_;
};

}  // namespace

NodeAgent::NodeAgent(const NodeAgentSettings& settings) {
  std::optional<Listener> listener;
  if (settings.hosts)
    listener =
        listen_on(settings.member.server.host, settings.listen_port.value_or(settings.member.server.port),
                  Deadline::after(seconds(10)));
  if (listener) port_ = listener->port();
  int ends[2];
  check(Sys{::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends)}, "socketpair for the node agent");
  UniqueFd theirs(ends[1]);
  channel_ = IpcChannel(UniqueFd(ends[0]));
  const pid_t launcher = ::getpid();
  pid_ = static_cast<pid_t>(check(Sys{::fork()}, "fork the node agent"));
  if (pid_ > 0) return;
  channel_.close();
  NodeAgentSettings own = settings;
  if (port_ != 0) own.member.server.port = port_;
  NodeAgentProcess(std::move(own), std::move(theirs), std::move(listener), launcher, lease_).run();
}

NodeAgent::~NodeAgent() {
  if (pid_ <= 0) return;
  channel_.send(kGoodbye);
  channel_.close();
  Deadline deadline = Deadline::after(kReap);
  bool patient = true;
  while (::waitpid(pid_, nullptr, WNOHANG) == 0) {
    if (patient && (put_down_ || deadline.expired())) {
      patient = false;
      deadline = Deadline::after(kDies);
      ::kill(pid_, SIGKILL);
    }
    if (!patient && deadline.expired()) break;
    std::this_thread::sleep_for(milliseconds(2));
  }
}

// How one ended that has not said why.
std::string NodeAgent::reap() {
  channel_.close();
  ::kill(pid_, SIGKILL);  // whatever it is doing without its channel
  int status = 0;
  const Deadline deadline = Deadline::after(kDies);
  while (::waitpid(pid_, &status, WNOHANG) == 0) {
    if (deadline.expired()) return "does not end on SIGKILL";
    std::this_thread::sleep_for(milliseconds(1));
  }
  pid_ = -1;
  return WIFSIGNALED(status) ? "was killed by " + signal_name(WTERMSIG(status))
                             : fmt::format("ended with exit code {}", WEXITSTATUS(status));
}

std::optional<LeaderEvent> NodeAgent::take() {
  if (over_) return std::nullopt;
  continue_if_stopped(pid_);
  std::string message;
  channel_.flush();
  const IpcChannel::Received received = channel_.receive(message);
  if (received == IpcChannel::Received::nothing) return std::nullopt;
  std::optional<LeaderEvent> event;
  if (received == IpcChannel::Received::message) {
    event = rendezvous::decode_leader_event(message);
    if (!event) event = rendezvous::LeaseLost{std::string(kWho) + " sent a message that cannot be decoded"};
  } else {
    lease_.revoke();
    event = rendezvous::LeaseLost{fmt::format("{} {}", kWho, reap())};
  }
  over_ = is_last(*event);
  return event;
}

void NodeAgent::say(const NodeEvent& event) { channel_.send(rendezvous::encode(event)); }

}  // namespace dtrain::launcher
