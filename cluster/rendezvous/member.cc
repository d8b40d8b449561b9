// A thread that polls the connection and beats. The caller's side is two queues under a lock: words to be
// said, events that came.
#include "cluster/rendezvous/member.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <deque>
#include <mutex>
#include <random>
#include <thread>
#include <utility>

#include "cluster/quorum/ask.h"
#include "cluster/rendezvous/boot_clock.h"
#include "cluster/rendezvous/messages.h"
#include "cluster/rendezvous/session.h"
#include "cluster/store/store_connection.h"
#include "runtime/base/check.h"
#include "runtime/base/start_thread.h"

namespace dtrain::rendezvous {
namespace {

// The last words must arrive before the connection is closed with unread events in it, which would reset it.
constexpr Duration kGoodbye = std::chrono::milliseconds(300);

// To connect again: short, so that a launcher that leaves is not kept.
constexpr Duration kOneAttempt = std::chrono::milliseconds(500);
constexpr int kPauseMs = 20;
// To find another leader.
constexpr Duration kAsk = std::chrono::milliseconds(800);
constexpr Duration kScatter = std::chrono::milliseconds(400);
constexpr int kAskAgainMs = 300;

NodeOffer with_instance_id(NodeOffer offer) {
  std::random_device random;
  while (offer.instance_id == 0) offer.instance_id = (std::uint64_t{random()} << 32) | random();
  return offer;
}

StoreClientOptions store_options(const MemberOptions& options, const NodeOffer& offer) {
  StoreClientOptions store;
  store.token = options.token;
  store.insecure = options.insecure;
  store.job = options.job;
  store.role = "launcher";
  store.rank = offer.node_rank.value_or(-1);
  return store;
}

SessionTimes times_of(const MemberOptions& options) {
  SessionTimes times;
  times.beat = options.beat;
  times.lease = options.lease;
  times.join = options.join_timeout;
  return times;
}

UniqueFd make_event() {
  return UniqueFd(static_cast<int>(check(Sys{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)}, "eventfd")));
}

void raise(const UniqueFd& event) {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(event.get(), &one, sizeof one);
}

void lower(const UniqueFd& event) {
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = ::read(event.get(), &count, sizeof count);
}

std::string why_broken(const StoreConnection& connection) {
  if (connection.closed_by_peer()) return "the rendezvous has closed the connection; its host is gone";
  return "the rendezvous: " + connection.why();
}

}  // namespace

struct Member::Impl {
  Impl(const MemberOptions& options_, const NodeOffer& offer_, const Deadline& deadline)
      : options(options_),
        offer(with_instance_id(offer_)),
        store(store_options(options, offer)),
        server(options.server),
        connection(connect_to_store(server, store, deadline)),
        session(offer, times_of(options), boot_clock().now(), options.leadership),
        wake(make_event()),
        arrived(make_event()) {
    if (options.leadership != nullptr) options.leadership->approach(server);
  }

  // The thread's.
  void run() noexcept;
  bool turn();
  void take_words();
  void flush();
  void receive();
  void deliver();
  void reconnect();
  void pause(int milliseconds);
  void go_elsewhere();
  void look_for_leader();
  bool follow(const Endpoint& leader);
  void part();

  const MemberOptions options;
  const NodeOffer offer;
  const StoreClientOptions store;
  Endpoint server;  // of the session
  StoreConnection connection;
  Session session;
  TimePoint lease_ends{};
  bool referred_in_vain = false;  // whom it was sent to does not answer
  std::mt19937 random{std::random_device{}()};
  UniqueFd wake, arrived;

  std::mutex mutex;  // guards what follows
  std::deque<NodeEvent> unsaid;
  std::deque<LeaderEvent> heard;
  bool last_delivered = false;
  bool leaving = false, hushed = false;

  std::thread thread;
};

void Member::Impl::run() noexcept {
  try {
    while (turn()) {
    }
    part();
  } catch (const std::exception& error) {
    session.lose(error.what());
    deliver();
  }
  connection.close();
}

// One attempt, which gives up before the lease does and early enough for a launcher that leaves.
void Member::Impl::reconnect() {
  connection.close();
  const Duration left = session.lease_ends() - boot_clock().now();
  try {
    connection =
        connect_to_store(server, store, Deadline::after(std::clamp(left, Duration::zero(), kOneAttempt)));
    session.resume(boot_clock().now());
  } catch (const PeerError&) {
    // Again until the lease has run out, but not without a pause.
    pause(kPauseMs);
  }
}

void Member::Impl::pause(int milliseconds) {
  pollfd waited{wake.get(), POLLIN, 0};
  ::poll(&waited, 1, milliseconds);
  lower(wake);
}

bool Member::Impl::follow(const Endpoint& leader) {
  connection.close();
  try {
    connection = connect_to_store(leader, store, Deadline::after(kOneAttempt));
  } catch (const PeerError&) {
    return false;
  }
  server = leader;
  if (options.leadership != nullptr) options.leadership->approach(server);
  // A launcher that has never heard of a leader who could be succeeded has no slot to come back to.
  const TimePoint now = boot_clock().now();
  if (!session.known().voters.empty())
    session.resume(now);
  else
    session.rejoin(now);
  return true;
}

// Who answers does not lead: its leader is, or will be, found through it. A leader that does not answer may
// be lost by now: where this launcher looked for the job at first, its successor is heard of.
void Member::Impl::go_elsewhere() {
  const bool known = session.elsewhere()->port != 0 && !std::exchange(referred_in_vain, false);
  const Endpoint leader = known ? *session.elsewhere() : session.admitted() ? server : options.server;
  if (!known) pause(kAskAgainMs);
  if (follow(leader)) return;
  referred_in_vain = known;
  pause(kAskAgainMs);
}

// The lease has run out.
void Member::Impl::look_for_leader() {
  connection.close();
  const TimePoint began = boot_clock().now();
  Search search = options.leadership->acquire(began);
  while (true) {
    if (search.elected) {
      options.on_elected({std::move(*search.elected), session.known(), session.place()});
      if (follow(offer.standby)) return;
    }
    if (std::any_of(search.leaders.begin(), search.leaders.end(),
                    [this](const Endpoint& leader) { return follow(leader); }))
      return;
    if (!search.request) break;
    const auto answers = ask_all(search.others, store, *search.request, kAsk, search.votes);
    search = options.leadership->answered(answers, boot_clock().now());
  }
  // Scattered over longer than asking takes, on a busy machine too, so that most candidates ask alone.
  const auto scatter =
      std::chrono::duration_cast<std::chrono::milliseconds>(kScatter + (boot_clock().now() - began));
  pause(static_cast<int>(kPauseMs + random() % static_cast<unsigned>(scatter.count())));
}

bool Member::Impl::turn() {
  const TimePoint due = session.tick(boot_clock().now());
  const Deadline next = Deadline::after(due - boot_clock().now());
  flush();
  deliver();
  // With the session the thread's work ends: a launcher that has heard the last events is not to beat on.
  if (session.ended()) return false;
  if (session.interrupted()) {
    if (session.orphaned())
      look_for_leader();
    else
      session.elsewhere() ? go_elsewhere() : reconnect();
    take_words();
    const std::lock_guard lock(mutex);
    return !leaving;
  }
  pollfd waited[] = {
      {connection.fd(), static_cast<short>(connection.unsent_bytes() == 0 ? POLLIN : POLLIN | POLLOUT), 0},
      {wake.get(), POLLIN, 0}};
  if (::poll(waited, 2, next.poll_timeout_ms()) < 0 && errno != EINTR) throw SystemError("poll", errno);
  lower(wake);
  take_words();
  if (waited[0].revents != 0) receive();
  if (session.admitted() && session.lease_ends() != std::exchange(lease_ends, session.lease_ends()) &&
      options.on_lease)
    options.on_lease(lease_ends);
  const std::lock_guard lock(mutex);
  return !leaving;
}

void Member::Impl::take_words() {
  std::deque<NodeEvent> taken;
  {
    const std::lock_guard lock(mutex);
    taken.swap(unsaid);
    if (hushed) session.hush();
  }
  for (const NodeEvent& event : taken) session.say(event, boot_clock().now());
}

void Member::Impl::flush() {
  for (const std::string& message : session.out()) connection.append(message);
  session.out().clear();
  if (!connection.flush()) session.interrupt(why_broken(connection));
}

void Member::Impl::receive() {
  bool more = true;
  while (more && !session.ended() && !session.interrupted()) {
    more = connection.receive();
    while (const auto message = connection.next()) session.receive(*message, boot_clock().now());
  }
  switch (connection.end()) {
    case net::SecureStream::End::none:
      return;
    case net::SecureStream::End::closed:
      return session.hang_up(why_broken(connection), boot_clock().now());
    case net::SecureStream::End::reset:
    case net::SecureStream::End::failed:
      return session.interrupt(why_broken(connection));
    case net::SecureStream::End::forged:
      return session.lose(why_broken(connection));
  }
}

void Member::Impl::deliver() {
  while (auto bytes = session.take()) {
    auto piece = decode_leader_event(*bytes);
    if (!piece) session.lose("the rendezvous sent an event that cannot be decoded");
    const std::lock_guard lock(mutex);
    if (piece && !last_delivered) heard.push_back(std::move(*piece));
    last_delivered = last_delivered || (piece && is_last(*piece));
    raise(arrived);
  }
}

// Sends what is left and waits for the other side to have read it.
void Member::Impl::part() {
  const Deadline deadline = Deadline::after(kGoodbye);
  if (session.interrupted() || !connection.is_open()) return;
  take_words();
  flush();
  ::shutdown(connection.fd(), SHUT_WR);
  while (!deadline.expired() && !connection.over()) {
    pollfd waited{connection.fd(), POLLIN, 0};
    ::poll(&waited, 1, deadline.poll_timeout_ms());
    connection.receive();
    while (connection.next()) {
    }
  }
}

Member::Member(const MemberOptions& options, const NodeOffer& offer, const Deadline& deadline)
    : impl_(std::make_unique<Impl>(options, offer, deadline)) {
  impl_->thread = start_thread("dtrain-member", [impl = impl_.get()] { impl->run(); });
}

Member::~Member() {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->leaving = true;
  }
  raise(impl_->wake);
  impl_->thread.join();
}

std::optional<LeaderEvent> Member::next(const Deadline& deadline) {
  while (true) {
    {
      const std::lock_guard lock(impl_->mutex);
      lower(impl_->arrived);
      if (!impl_->heard.empty()) {
        LeaderEvent event = std::move(impl_->heard.front());
        impl_->heard.pop_front();
        if (!impl_->heard.empty()) raise(impl_->arrived);
        return event;
      }
      if (impl_->last_delivered || deadline.expired()) return std::nullopt;
    }
    pollfd waited{impl_->arrived.get(), POLLIN, 0};
    ::poll(&waited, 1, deadline.poll_timeout_ms());
  }
}

int Member::fd() const noexcept { return impl_->arrived.get(); }

void Member::hush() {
  const std::lock_guard lock(impl_->mutex);
  impl_->hushed = true;
  raise(impl_->wake);
}

void Member::say(const NodeEvent& event) {
  const std::lock_guard lock(impl_->mutex);
  impl_->unsaid.push_back(event);
  raise(impl_->wake);
}

}  // namespace dtrain::rendezvous
