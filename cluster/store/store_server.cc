// The server's loop. Responses are queued while an event is served and sent together afterwards, so no
// client's socket is touched from inside another's request.
#include "cluster/store/store_server.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <set>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cluster/store/store_connection.h"
#include "cluster/store/store_table.h"
#include "runtime/base/check.h"

namespace dtrain {
namespace {

constexpr std::uint64_t kListenerId = 0;
constexpr std::uint64_t kWakeId = 1;
constexpr std::uint64_t kFirstClientId = 2;
constexpr std::size_t kChunkBytes = 64 * 1024;
constexpr int kAcceptsPerTurn = 64;
constexpr int kEventsPerTurn = 256;
// A client with this much unsent is not served until it has taken some.
constexpr std::size_t kPauseBytes = 1 << 20;
// Answers that wait for the end of a turn, all clients together; with more they leave as they are made.
constexpr std::size_t kQueuedBytes = 16 << 20;
constexpr std::chrono::milliseconds kAcceptPause{100};

void refuse_open_store(const SocketAddress& address, const StoreServerOptions& options) {
  if (options.token || options.insecure || address.is_loopback()) return;
  throw UsageError(
      fmt::format("store on {}: expected a token, since the address is not loopback, got none; set "
                  "DTRAIN_TOKEN or DTRAIN_TOKEN_FILE "
                  "in every process, or allow an insecure store on a network where everyone is trusted",
                  address.text()));
}

// Strangers may take a quarter of the descriptors this process may open.
std::size_t affordable_strangers() {
  constexpr std::size_t kLeast = 8;
  rlimit limit{};
  check(Sys{::getrlimit(RLIMIT_NOFILE, &limit)}, "getrlimit RLIMIT_NOFILE");
  return std::max<std::size_t>(kLeast, limit.rlim_cur / 4);
}

}  // namespace

struct StoreServer::Impl final : StoreDesk {
  Impl(Listener socket, StoreServerOptions settings);

  // The loop's thread only, after construction.
  void run() noexcept;
  void turn();
  int next_timeout_ms() const;
  void accept_strangers();
  bool admit(UniqueFd fd);
  bool evict_stranger(Duration least_age);
  bool somebody_knocks() const;
  void expire_strangers();
  void pause_accepting();
  void serve(StoreConnection& connection, std::uint32_t events);
  bool receive(StoreConnection& connection);
  bool welcome(StoreConnection& connection);
  bool serve_frames(StoreConnection& connection);
  void apply(std::uint64_t client, const wire::Request& request);
  void observe();
  void queue(std::uint64_t client, const wire::Response& response);
  void flush_dirty();
  void watch(StoreConnection& connection);
  void drop(std::uint64_t id, std::string_view why, std::uint64_t StoreServerStats::*count);
  void say(LogLevel level, const std::string& text) const noexcept;
  void count(std::uint64_t StoreServerStats::*field, std::int64_t by = 1);
  void publish(const std::string& key, std::string value) override;
  void forget(const std::string& key) override;
  void expel(std::uint64_t client) override;

  Listener listener;
  StoreServerOptions options;
  SocketAddress address;
  UniqueFd epoll, wake;
  StoreTable table;
  std::unordered_map<std::uint64_t, std::unique_ptr<StoreConnection>> connections;
  // Strangers by id, which grows with time: those that have not sent a byte go first when room is needed.
  std::set<std::uint64_t> silent, talking;
  std::vector<std::uint64_t> dirty;
  std::vector<char> chunk = std::vector<char>(kChunkBytes);
  std::uint64_t next_id = kFirstClientId;
  std::optional<TimePoint> accepting_again;
  std::optional<TimePoint> observer_due;
  std::size_t queued_bytes = 0;  // since the last flush

  std::atomic<bool> stopping{false};
  mutable std::mutex mutex;  // guards stats
  mutable std::condition_variable clients_changed;
  StoreServerStats stats;
  std::thread thread;
};

StoreServer::Impl::Impl(Listener socket, StoreServerOptions settings)
    : listener(std::move(socket)),
      options(std::move(settings)),
      address(listener.address),
      table(options.table,
            [this](std::uint64_t client, const wire::Response& response) { queue(client, response); }) {
  refuse_open_store(address, options);
  options.max_strangers = std::min(options.max_strangers, affordable_strangers());
  epoll.reset(static_cast<int>(check(Sys{::epoll_create1(EPOLL_CLOEXEC)}, "epoll_create1")));
  wake.reset(static_cast<int>(check(Sys{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)}, "eventfd")));
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kListenerId;
  check(Sys{::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, listener.fd.get(), &event)}, "epoll_ctl listener");
  event.data.u64 = kWakeId;
  check(Sys{::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, wake.get(), &event)}, "epoll_ctl eventfd");
}

void StoreServer::Impl::say(LogLevel level, const std::string& text) const noexcept {
  if (options.log != nullptr) options.log->write(level, text);
}

void StoreServer::Impl::count(std::uint64_t StoreServerStats::*field, std::int64_t by) {
  const std::lock_guard lock(mutex);
  stats.*field += static_cast<std::uint64_t>(by);
  if (field == &StoreServerStats::clients) clients_changed.notify_all();
}

void StoreServer::Impl::run() noexcept {
  try {
    while (!stopping) turn();
  } catch (const std::exception& error) {
    say(LogLevel::error, fmt::format("store on {}: the server ends: {}", address.text(), error.what()));
  }
  // Those who still wait learn at once.
  connections.clear();
  listener.fd.reset();
  const std::lock_guard lock(mutex);
  stats.clients = 0;
  clients_changed.notify_all();
}

void StoreServer::Impl::turn() {
  epoll_event events[kEventsPerTurn];
  const int ready = ::epoll_wait(epoll.get(), events, kEventsPerTurn, next_timeout_ms());
  if (ready < 0 && errno != EINTR) throw SystemError("epoll_wait", errno);
  for (int i = 0; i < ready && !stopping; ++i) {
    const std::uint64_t id = events[i].data.u64;
    if (id == kWakeId) continue;
    if (id == kListenerId) {
      accept_strangers();
      continue;
    }
    // An earlier event of this turn may have closed it.
    const auto entry = connections.find(id);
    if (entry != connections.end()) serve(*entry->second, events[i].events);
  }
  flush_dirty();
  expire_strangers();
  observe();
}

void StoreServer::Impl::observe() {
  if (options.observer == nullptr) return;
  observer_due = options.observer->on_turn(*this, steady_clock().now());
  flush_dirty();
}

int StoreServer::Impl::next_timeout_ms() const {
  std::optional<TimePoint> next = accepting_again;
  if (observer_due && (!next || *observer_due < *next)) next = observer_due;
  for (const auto* strangers : {&silent, &talking}) {
    if (strangers->empty()) continue;
    const TimePoint expires = connections.at(*strangers->begin())->expires();
    if (!next || expires < *next) next = expires;
  }
  if (!next) return -1;
  return Deadline::after(*next - steady_clock().now()).poll_timeout_ms();
}

void StoreServer::Impl::accept_strangers() {
  for (int i = 0; i < kAcceptsPerTurn; ++i) {
    UniqueFd fd(::accept4(listener.fd.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (fd) {
      if (!admit(std::move(fd))) return;
      continue;
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK) return;
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      // The kernel says so even when nobody waits to be accepted.
      if (!somebody_knocks()) return;
      // Those who came a moment ago are left the time to say hello, or newcomers would drive each other out.
      if (evict_stranger(kAcceptPause)) continue;
      return pause_accepting();
    }
    // Anything else is one connection that failed before it was accepted.
  }
}

bool StoreServer::Impl::admit(UniqueFd fd) {
  count(&StoreServerStats::accepted);
  while (silent.size() + talking.size() >= options.max_strangers && evict_stranger(Duration::zero())) {
  }
  const std::uint64_t id = next_id++;
  const std::string_view secret = options.token ? options.token->bytes() : std::string_view();
  auto connection = std::make_unique<StoreConnection>(
      std::move(fd), id, steady_clock().now() + options.handshake_timeout, secret);
  epoll_event event{};
  event.events = connection->watched = EPOLLIN;
  event.data.u64 = id;
  if (::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, connection->fd(), &event) != 0) return false;
  connections.emplace(id, std::move(connection));
  silent.insert(id);
  return true;
}

bool StoreServer::Impl::somebody_knocks() const {
  pollfd waited{listener.fd.get(), POLLIN, 0};
  return ::poll(&waited, 1, 0) > 0;
}

bool StoreServer::Impl::evict_stranger(Duration least_age) {
  const TimePoint latest = steady_clock().now() + options.handshake_timeout - least_age;
  for (const auto* strangers : {&silent, &talking}) {
    if (strangers->empty() || connections.at(*strangers->begin())->expires() > latest) continue;
    drop(*strangers->begin(), "room is needed for newer connections", &StoreServerStats::evicted);
    return true;
  }
  return false;
}

// Without descriptors and without strangers to close there is nothing to do but wait; the listener would wake
// us forever.
void StoreServer::Impl::pause_accepting() {
  if (!accepting_again)
    say(LogLevel::warning,
        fmt::format("store on {}: out of file descriptors with {} clients; raise `ulimit -n`", address.text(),
                    connections.size()));
  epoll_event event{};
  event.data.u64 = kListenerId;
  check(Sys{::epoll_ctl(epoll.get(), EPOLL_CTL_MOD, listener.fd.get(), &event)}, "epoll_ctl listener");
  accepting_again = steady_clock().now() + kAcceptPause;
}

void StoreServer::Impl::expire_strangers() {
  const TimePoint now = steady_clock().now();
  for (const auto* strangers : {&silent, &talking}) {
    while (!strangers->empty() && connections.at(*strangers->begin())->expires() <= now)
      drop(*strangers->begin(), "it did not authenticate in time", &StoreServerStats::timed_out);
  }
  if (!accepting_again || *accepting_again > now) return;
  accepting_again.reset();
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kListenerId;
  check(Sys{::epoll_ctl(epoll.get(), EPOLL_CTL_MOD, listener.fd.get(), &event)}, "epoll_ctl listener");
}

void StoreServer::Impl::serve(StoreConnection& connection, std::uint32_t events) {
  const std::uint64_t id = connection.id();
  if ((events & EPOLLOUT) != 0 && !connection.dirty) {
    connection.dirty = true;
    dirty.push_back(id);
  }
  if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) == 0) return;
  if (!receive(connection)) drop(id, connection.reason(), nullptr);
}

// False when the connection is over.
bool StoreServer::Impl::receive(StoreConnection& connection) {
  const ssize_t got = ::recv(connection.fd(), chunk.data(), chunk.size(), 0);
  connection.closed_by_peer = got == 0;
  if (got == 0) return false;
  if (got < 0) {
    connection.note_error(errno);
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
  }
  const std::string_view bytes(chunk.data(), static_cast<std::size_t>(got));
  if (connection.authenticated()) {
    connection.reader().feed(bytes);
    return serve_frames(connection);
  }
  if (silent.erase(connection.id()) != 0) talking.insert(connection.id());
  const bool good = connection.shake_hands(bytes);
  if (!connection.flush()) return false;
  if (!good) {
    count(&StoreServerStats::refused);
    return false;
  }
  return !connection.authenticated() || (welcome(connection) && serve_frames(connection));
}

// The first frame tells the client whether it is in.
bool StoreServer::Impl::welcome(StoreConnection& connection) {
  talking.erase(connection.id());
  const wire::Identity& peer = connection.identity();
  wire::Response answer;
  const std::size_t clients = connections.size() - silent.size() - talking.size();
  if (peer.job != options.job)
    answer = {0, wire::Status::misuse,
              fmt::format("the store serves job '{}', not '{}'", options.job, peer.job)};
  else if (clients > options.max_clients)
    answer = {0, wire::Status::full, fmt::format("the store serves at most {} clients", options.max_clients)};
  connection.append(wire::encode(answer));
  count(&StoreServerStats::authenticated);
  count(&StoreServerStats::clients);
  // Only now: strangers should cost as little as can be.
  try {
    tune_stream(connection.fd());
  } catch (const SystemError&) {
    return false;  // gone already
  }
  if (answer.status == wire::Status::ok) return connection.flush();
  count(&StoreServerStats::refused);
  say(LogLevel::warning,
      fmt::format("store on {}: {} {} refused: {}", address.text(), peer.role, peer.rank, answer.value));
  connection.flush();
  return false;
}

bool StoreServer::Impl::serve_frames(StoreConnection& connection) {
  std::string_view payload;
  while (!connection.doomed) {
    // What it has asked for goes out before it may ask for more; the rest waits in its reader.
    connection.stalled = connection.unsent_bytes() >= kPauseBytes;
    if (connection.stalled) return true;
    const wire::FrameReader::Result result = connection.reader().next(payload);
    if (result == wire::FrameReader::Result::need_more) return true;
    const auto request =
        result == wire::FrameReader::Result::frame ? wire::decode_request(payload) : std::nullopt;
    if (!request) {
      count(&StoreServerStats::refused);
      const wire::Identity& peer = connection.identity();
      say(LogLevel::warning,
          fmt::format("store on {}: {} {} dropped: it sent {}", address.text(), peer.role, peer.rank,
                      result == wire::FrameReader::Result::bad ? connection.reader().reason()
                                                               : "a malformed request"));
      return false;
    }
    apply(connection.id(), *request);
  }
  return true;
}

void StoreServer::Impl::apply(std::uint64_t client, const wire::Request& request) {
  using wire::Op;
  const bool writes = request.op == Op::set || request.op == Op::add || request.op == Op::compare_set ||
                      request.op == Op::remove;
  if (!writes || options.observer == nullptr || !request.keys.front().starts_with(options.observer->prefix()))
    return table.apply(client, request);
  if (request.op != Op::set)
    return queue(client, {request.id, wire::Status::misuse, "expected set: these keys are the host's"});
  std::string answer = options.observer->on_set(*this, client, request.keys.front(), request.value);
  queue(client, {request.id, wire::Status::ok, std::move(answer)});
}

// As if a client nobody listens to had asked.
void StoreServer::Impl::publish(const std::string& key, std::string value) {
  table.apply(kListenerId, {.op = wire::Op::set, .keys = {key}, .value = std::move(value), .expected = {}});
}

void StoreServer::Impl::forget(const std::string& key) {
  table.apply(kListenerId, {.op = wire::Op::remove, .keys = {key}, .value = {}, .expected = {}});
}

void StoreServer::Impl::expel(std::uint64_t client) {
  const auto entry = connections.find(client);
  if (entry == connections.end()) return;
  entry->second->doomed = true;
  if (std::exchange(entry->second->dirty, true)) return;
  dirty.push_back(client);
}

void StoreServer::Impl::queue(std::uint64_t client, const wire::Response& response) {
  const auto entry = connections.find(client);
  if (entry == connections.end()) return;
  StoreConnection& connection = *entry->second;
  if (connection.doomed) return;
  connection.append(wire::encode(response));
  // Large answers leave as they are made: many waits may end in one event.
  queued_bytes += response.value.size();
  const bool small = connection.unsent_bytes() < kPauseBytes && queued_bytes < kQueuedBytes;
  const bool alive = small || connection.flush();
  connection.doomed = !alive || connection.unsent_bytes() > options.max_unsent_bytes;
  if (connection.dirty) return;
  connection.dirty = true;
  dirty.push_back(client);
}

void StoreServer::Impl::flush_dirty() {
  // Serving a stalled client makes more of them dirty.
  for (std::size_t i = 0; i < dirty.size(); ++i) {
    const auto entry = connections.find(dirty[i]);
    if (entry == connections.end()) continue;
    StoreConnection& connection = *entry->second;
    connection.dirty = false;
    if (connection.doomed) {
      drop(dirty[i], "it does not read what it asked for", &StoreServerStats::refused);
    } else if (!connection.flush() || (connection.stalled && !serve_frames(connection))) {
      drop(dirty[i], "", nullptr);
    } else {
      watch(connection);
    }
  }
  dirty.clear();
  queued_bytes = 0;
}

void StoreServer::Impl::watch(StoreConnection& connection) {
  epoll_event event{};
  event.events = 0;
  if (!connection.stalled) event.events |= EPOLLIN;
  if (connection.unsent_bytes() > 0) event.events |= EPOLLOUT;
  if (event.events == connection.watched) return;
  event.data.u64 = connection.id();
  check(Sys{::epoll_ctl(epoll.get(), EPOLL_CTL_MOD, connection.fd(), &event)}, "epoll_ctl client");
  connection.watched = event.events;
}

void StoreServer::Impl::drop(std::uint64_t id, std::string_view why, std::uint64_t StoreServerStats::*field) {
  const auto entry = connections.find(id);
  if (field != nullptr) count(field);
  if (!why.empty())
    say(LogLevel::debug, fmt::format("store on {}: a connection is closed: {}", address.text(), why));
  const bool was_client = entry->second->authenticated();
  const bool closed = entry->second->closed_by_peer;
  if (was_client) table.drop_client(id);
  silent.erase(id);
  talking.erase(id);
  connections.erase(entry);
  if (!was_client) return;
  count(&StoreServerStats::clients, -1);
  if (options.observer == nullptr) return;
  options.observer->on_leave(*this, id, closed);
  observer_due = TimePoint{};  // it may have something to do soon
}

StoreServer::StoreServer(Listener listener, StoreServerOptions options)
    : impl_(std::make_unique<Impl>(std::move(listener), std::move(options))) {
  impl_->thread = std::thread([impl = impl_.get()] { impl->run(); });
}

StoreServer::~StoreServer() { stop(); }

const SocketAddress& StoreServer::address() const noexcept { return impl_->address; }

bool StoreServer::wait_until_clients(std::size_t count, const Deadline& deadline) const {
  std::unique_lock lock(impl_->mutex);
  const auto few = [&] { return impl_->stats.clients <= count; };
  if (deadline.is_never()) {
    impl_->clients_changed.wait(lock, few);
    return true;
  }
  return impl_->clients_changed.wait_until(lock, *deadline.at(), few);
}

StoreServerStats StoreServer::stats() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->stats;
}

void StoreServer::stop() noexcept {
  impl_->stopping = true;
  const std::uint64_t one = 1;
  // Cannot fail: the counter is far from its limit. The flag is what counts; this only wakes the loop.
  [[maybe_unused]] const ssize_t written = ::write(impl_->wake.get(), &one, sizeof one);
  if (impl_->thread.joinable()) impl_->thread.join();
}

}  // namespace dtrain
