// The server's loop. Responses are queued while an event is served and sent together afterwards, so no
// client's socket is touched from inside another's request.
#include "cluster/store/store_server.h"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cluster/net/acceptor.h"
#include "cluster/store/store_connection.h"
#include "cluster/store/store_table.h"
#include "runtime/base/check.h"
#include "runtime/base/start_thread.h"

namespace dtrain {
namespace {

constexpr std::uint64_t kAcceptorId = 0;
constexpr std::uint64_t kWakeId = 1;
constexpr std::uint64_t kFirstClientId = 2;
constexpr std::uint64_t kNobody = 0;  // as a client
constexpr int kEventsPerTurn = 256;
// A client with this much unsent is not served until it has taken some.
constexpr std::size_t kPauseBytes = 1 << 20;
// Answers that wait for the end of a turn, all clients together; with more they leave as they are made.
constexpr std::size_t kQueuedBytes = 16 << 20;

struct Client {
  Client(StoreConnection&& connected, net::Identity&& who)
      : connection(std::move(connected)), identity(std::move(who)) {}
  StoreConnection connection;
  net::Identity identity;
  // What epoll is asked to watch, kept here so that it is only changed when it must be.
  std::uint32_t watched = EPOLLIN;
  bool dirty = false;    // is on the list of those to flush
  bool stalled = false;  // is not served until it has taken what it asked for
  bool doomed = false;   // is closed when the event at hand has been served
};

}  // namespace

struct StoreServer::Impl final : StoreControl {
  Impl(Listener socket, StoreServerOptions settings);

  // The loop's thread only, after construction.
  void run() noexcept;
  void turn();
  int next_timeout_ms() const;
  void welcome_newcomers();
  std::string judge(const net::Identity& peer);
  void serve(std::uint64_t id, Client& client, std::uint32_t events);
  bool serve_messages(std::uint64_t id, Client& client);
  void apply(std::uint64_t client, const wire::Request& request);
  void observe();
  void queue(std::uint64_t client, const wire::Response& response);
  void flush_dirty();
  void watch(std::uint64_t id, Client& client);
  void drop(std::uint64_t id);
  void say(LogLevel level, const std::string& text) const noexcept;
  void count(std::uint64_t StoreServerStats::*field, std::int64_t by = 1);
  void publish(const std::string& key, std::string value) override;
  void forget(const std::string& key) override;
  void expel(std::uint64_t client) override;

  const StoreServerOptions options;
  const SocketAddress address;
  net::Acceptor acceptor;
  UniqueFd epoll, wake;
  StoreTable table;
  std::unordered_map<std::uint64_t, Client> clients;
  std::vector<std::uint64_t> dirty;
  std::uint64_t next_id = kFirstClientId;
  std::optional<TimePoint> observer_due;
  std::size_t queued_bytes = 0;  // since the last flush

  std::atomic<bool> stopping{false};
  mutable std::mutex mutex;  // guards stats; of those who have not authenticated, the acceptor counts
  mutable std::condition_variable clients_changed;
  StoreServerStats stats;
  std::thread thread;
};

StoreServer::Impl::Impl(Listener socket, StoreServerOptions settings)
    : options(std::move(settings)),
      address(socket.address),
      acceptor(std::move(socket), options.token ? options.token->bytes() : std::string_view(),
               Protection::authenticate, [this](const net::Identity& peer) { return judge(peer); },
               {options.max_strangers, 0, options.handshake_timeout}),
      epoll(static_cast<int>(check(Sys{::epoll_create1(EPOLL_CLOEXEC)}, "epoll_create1"))),
      wake(static_cast<int>(check(Sys{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)}, "eventfd"))),
      table(options.table,
            [this](std::uint64_t client, const wire::Response& response) { queue(client, response); }) {
  if (!options.insecure) require_token(options.token, address, "store on " + address.text());
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kAcceptorId;
  check(Sys{::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, acceptor.fd(), &event)}, "epoll_ctl acceptor");
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
  clients.clear();
  acceptor.close();
  const std::lock_guard lock(mutex);
  stats.clients = 0;
  clients_changed.notify_all();
}

void StoreServer::Impl::turn() {
  epoll_event events[kEventsPerTurn];
  const int ready = ::epoll_wait(epoll.get(), events, kEventsPerTurn, next_timeout_ms());
  if (ready < 0 && errno != EINTR) throw SystemError("epoll_wait", errno);
  bool newcomers = acceptor.due() && *acceptor.due() <= steady_clock().now();
  for (int i = 0; i < ready && !stopping; ++i) {
    const std::uint64_t id = events[i].data.u64;
    newcomers = newcomers || id == kAcceptorId;
    // An earlier event of this turn may have closed it.
    const auto entry = clients.find(id);
    if (entry != clients.end()) serve(id, entry->second, events[i].events);
  }
  if (newcomers) welcome_newcomers();
  flush_dirty();
  observe();
}

void StoreServer::Impl::observe() {
  if (options.observer == nullptr) return;
  observer_due = options.observer->on_turn(*this, steady_clock().now());
  flush_dirty();
}

int StoreServer::Impl::next_timeout_ms() const {
  std::optional<TimePoint> next = acceptor.due();
  if (observer_due && (!next || *observer_due < *next)) next = observer_due;
  if (!next) return -1;
  return Deadline::after(*next - steady_clock().now()).poll_timeout_ms();
}

// Why a client that holds the token is not served all the same. A client that is told it is in has been
// counted.
std::string StoreServer::Impl::judge(const net::Identity& peer) {
  std::string why;
  if (peer.service != options.job)
    why = fmt::format("the store serves job '{}', not '{}'", options.job, peer.service);
  else if (stats.clients >= options.max_clients)
    why = fmt::format("the store serves at most {} clients", options.max_clients);
  if (why.empty())
    count(&StoreServerStats::clients);
  else
    say(LogLevel::warning,
        fmt::format("store on {}: {} {} refused: {}", address.text(), peer.role, peer.rank, why));
  return why;
}

void StoreServer::Impl::welcome_newcomers() {
  const std::uint64_t rejected = acceptor.counts().rejected();
  const bool was_starved = acceptor.starved();
  for (net::AcceptedPeer& peer : acceptor.serve()) {
    const std::uint64_t id = next_id++;
    Client& client =
        clients.try_emplace(id, StoreConnection(std::move(peer.stream)), std::move(peer.identity))
            .first->second;
    epoll_event event{};
    event.events = client.watched;
    event.data.u64 = id;
    if (::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, client.connection.fd(), &event) != 0) clients.erase(id);
  }
  if (acceptor.starved() && !was_starved)
    say(LogLevel::warning,
        fmt::format("store on {}: out of file descriptors with {} clients; raise `ulimit -n`", address.text(),
                    clients.size()));
  if (acceptor.counts().rejected() > rejected)
    say(LogLevel::debug, fmt::format("store on {}: {}", address.text(), acceptor.rejections()));
  const std::lock_guard lock(mutex);
  stats.clients = clients.size();  // without those who went while they were let in
  clients_changed.notify_all();
}

void StoreServer::Impl::serve(std::uint64_t id, Client& client, std::uint32_t events) {
  if ((events & EPOLLOUT) != 0 && !client.dirty) {
    client.dirty = true;
    dirty.push_back(id);
  }
  if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) == 0) return;
  client.connection.receive();  // once: others have their turn before what is still in the socket
  if (!serve_messages(id, client)) drop(id);
}

// False when the connection is over.
bool StoreServer::Impl::serve_messages(std::uint64_t id, Client& client) {
  StoreConnection& connection = client.connection;
  while (!client.doomed) {
    // What it has asked for goes out before it may ask for more; the rest waits.
    client.stalled = connection.unsent_bytes() >= kPauseBytes;
    if (client.stalled) return true;
    const auto payload = connection.next();
    const auto request = payload ? wire::decode_request(*payload) : std::nullopt;
    if (request) {
      apply(id, *request);
      continue;
    }
    if (!payload && !connection.over()) return true;
    if (payload || connection.end() == net::SecureStream::End::forged) {
      count(&StoreServerStats::refused);
      say(LogLevel::warning,
          fmt::format("store on {}: {} {} dropped: {}", address.text(), client.identity.role,
                      client.identity.rank, payload ? "it sent a malformed request" : connection.why()));
    }
    return false;
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
    return queue(client, {request.id, wire::Status::misuse,
                          "expected set, the only operation on the keys of the rendezvous"});
  std::string answer = options.observer->on_set(*this, client, request.keys.front(), request.value);
  queue(client, {request.id, wire::Status::ok, std::move(answer)});
}

// As if a client nobody listens to had asked.
void StoreServer::Impl::publish(const std::string& key, std::string value) {
  table.apply(kNobody, {.op = wire::Op::set, .keys = {key}, .value = std::move(value), .expected = {}});
}

void StoreServer::Impl::forget(const std::string& key) {
  table.apply(kNobody, {.op = wire::Op::remove, .keys = {key}, .value = {}, .expected = {}});
}

void StoreServer::Impl::expel(std::uint64_t client) {
  const auto entry = clients.find(client);
  if (entry == clients.end()) return;
  entry->second.doomed = true;
  if (std::exchange(entry->second.dirty, true)) return;
  dirty.push_back(client);
}

void StoreServer::Impl::queue(std::uint64_t id, const wire::Response& response) {
  const auto entry = clients.find(id);
  if (entry == clients.end()) return;
  Client& client = entry->second;
  if (client.doomed) return;
  client.connection.append(wire::encode(response));
  // Large answers leave as they are made: many waits may end in one event.
  queued_bytes += response.value.size();
  const bool small = client.connection.unsent_bytes() < kPauseBytes && queued_bytes < kQueuedBytes;
  const bool alive = small || client.connection.flush();
  client.doomed = !alive || client.connection.unsent_bytes() > options.max_unsent_bytes;
  if (client.dirty) return;
  client.dirty = true;
  dirty.push_back(id);
}

void StoreServer::Impl::flush_dirty() {
  // Serving a stalled client makes more of them dirty.
  for (std::size_t i = 0; i < dirty.size(); ++i) {
    const std::uint64_t id = dirty[i];
    const auto entry = clients.find(id);
    if (entry == clients.end()) continue;
    Client& client = entry->second;
    client.dirty = false;
    if (client.doomed) {
      count(&StoreServerStats::refused);
      say(LogLevel::debug, fmt::format("store on {}: {} {} dropped: it does not read what it asked for",
                                       address.text(), client.identity.role, client.identity.rank));
      drop(id);
    } else if (!client.connection.flush() || (client.stalled && !serve_messages(id, client))) {
      drop(id);
    } else {
      watch(id, client);
    }
  }
  dirty.clear();
  queued_bytes = 0;
}

void StoreServer::Impl::watch(std::uint64_t id, Client& client) {
  epoll_event event{};
  event.events = 0;
  if (!client.stalled) event.events |= EPOLLIN;
  if (client.connection.unsent_bytes() > 0) event.events |= EPOLLOUT;
  if (event.events == client.watched) return;
  event.data.u64 = id;
  check(Sys{::epoll_ctl(epoll.get(), EPOLL_CTL_MOD, client.connection.fd(), &event)}, "epoll_ctl client");
  client.watched = event.events;
}

void StoreServer::Impl::drop(std::uint64_t id) {
  const auto entry = clients.find(id);
  const bool closed = entry->second.connection.closed_by_peer();
  table.drop_client(id);
  clients.erase(entry);
  count(&StoreServerStats::clients, -1);
  if (options.observer == nullptr) return;
  options.observer->on_leave(*this, id, closed);
  observer_due = TimePoint{};  // it may have something to do soon
}

StoreServer::StoreServer(Listener listener, StoreServerOptions options)
    : impl_(std::make_unique<Impl>(std::move(listener), std::move(options))) {
  impl_->thread = start_thread("dtrain-store", [impl = impl_.get()] { impl->run(); });
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
  const net::AcceptorCounts strangers = impl_->acceptor.counts();
  const std::lock_guard lock(impl_->mutex);
  StoreServerStats stats = impl_->stats;
  stats.accepted = strangers.accepted;
  stats.authenticated = strangers.authenticated;
  stats.refused += strangers.refused;
  stats.timed_out = strangers.timed_out;
  stats.evicted = strangers.evicted;
  return stats;
}

void StoreServer::stop() noexcept {
  impl_->stopping = true;
  const std::uint64_t one = 1;
  // Cannot fail: the counter is far from its limit. The flag is what counts; this only wakes the loop.
  [[maybe_unused]] const ssize_t written = ::write(impl_->wake.get(), &one, sizeof one);
  if (impl_->thread.joinable()) impl_->thread.join();
}

}  // namespace dtrain
