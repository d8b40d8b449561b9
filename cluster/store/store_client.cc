// Calls of many threads over one connection. Requests carry numbers, so a waiting get does not hold up
// another thread's set. One of the waiting threads polls the socket for all; when it has its answer the next
// takes over.
#include "cluster/store/store_client.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <unordered_map>

#include "cluster/store/store_connection.h"
#include "cluster/store/store_wire.h"
#include "runtime/base/check.h"

namespace dtrain {
namespace {

using wire::Op;
using wire::Request;
using wire::Response;
using wire::Status;

constexpr std::chrono::milliseconds kCancelGrace{300};
// Of a long list of keys an error shows this many.
constexpr std::size_t kShownKeys = 8;

std::string_view name_of(Op op) noexcept {
  switch (op) {
    case Op::set:
      return "set";
    case Op::get:
      return "get";
    case Op::try_get:
      return "try_get";
    case Op::wait:
      return "wait";
    case Op::add:
      return "add";
    case Op::compare_set:
      return "compare_set";
    case Op::remove:
      return "remove";
    case Op::cancel:
      return "cancel";
  }
  return "?";
}

std::string quoted(const std::vector<std::string>& keys) {
  std::string text;
  for (std::size_t i = 0; i < std::min(keys.size(), kShownKeys); ++i) {
    text += fmt::format("{}'{}'", i == 0 ? "" : ", ", keys[i]);
  }
  if (keys.size() > kShownKeys) text += fmt::format(" and {} more", keys.size() - kShownKeys);
  return text;
}

std::vector<std::string> split_lines(std::string_view text) {
  std::vector<std::string> lines;
  for (std::size_t end = 0; (end = text.find('\n')) != std::string_view::npos; text.remove_prefix(end + 1))
    lines.emplace_back(text.substr(0, end));
  return lines;
}

}  // namespace

struct StoreClient::Impl {
  Impl(const Endpoint& endpoint, const StoreClientOptions& settings, const Deadline& deadline);

  Response call(Request request, const Deadline& deadline);

  // All below need the lock.
  using Lock = std::unique_lock<std::mutex>;
  bool await(Lock& lock, std::uint64_t id, const Request& request, const Deadline& deadline);
  void turn(Lock& lock, const Deadline& deadline);
  void send(const Request& request);
  void receive();
  void deliver(std::string_view payload);
  void lose(std::string why);
  PeerError failure(const Request& request, std::string_view why) const;
  Response give_up(Lock& lock, const Request& request, std::uint64_t id, TimePoint start);

  const Endpoint server;
  StoreConnection connection;
  UniqueFd wake;
  std::mutex mutex;
  std::condition_variable changed;
  std::unordered_map<std::uint64_t, std::optional<Response>> pending;
  std::uint64_t next_id = 1;
  bool polling = false;  // a thread is in poll(), without the lock
  std::string lost;      // why, once the connection is of no more use
};

StoreClient::Impl::Impl(const Endpoint& endpoint, const StoreClientOptions& settings,
                        const Deadline& deadline)
    : server(endpoint),
      connection(connect_to_store(endpoint, settings, deadline)),
      wake(static_cast<int>(check(Sys{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)}, "eventfd"))) {}

PeerError StoreClient::Impl::failure(const Request& request, std::string_view why) const {
  return {fmt::format("store {}: {} {}: {}", server.text(), name_of(request.op), quoted(request.keys), why),
          {.host = server.host, .operation = fmt::format("store {}", name_of(request.op)), .tensor = {}}};
}

Response StoreClient::Impl::call(Request request, const Deadline& deadline) {
  const TimePoint start = steady_clock().now();
  for (const std::string& key : request.keys) {
    if (key.empty() || key.size() > wire::kMaxKeyBytes)
      throw UsageError(fmt::format("store {}: expected a key of 1 to {} bytes, got {}", name_of(request.op),
                                   wire::kMaxKeyBytes, key.size()));
  }
  const std::size_t value_bytes =
      std::max(request.value.size(), request.expected ? request.expected->size() : 0);
  if (value_bytes > wire::kMaxValueBytes)
    throw UsageError(fmt::format("store {} {}: expected a value of at most {} bytes, got {}",
                                 name_of(request.op), quoted(request.keys), wire::kMaxValueBytes,
                                 value_bytes));
  Lock lock(mutex);
  const std::uint64_t id = request.id = next_id++;
  pending[id];
  send(request);
  const bool answered = await(lock, id, request, deadline);
  Response response = answered ? std::move(*pending.at(id)) : give_up(lock, request, id, start);
  pending.erase(id);
  if (response.status == Status::misuse)
    throw UsageError(
        fmt::format("store {} {}: {}", name_of(request.op), quoted(request.keys), response.value));
  if (response.status == Status::full) throw failure(request, response.value);
  return response;
}

// True once the answer to `id` is there, false when the deadline passed; throws when the store is lost.
bool StoreClient::Impl::await(Lock& lock, std::uint64_t id, const Request& request,
                              const Deadline& deadline) {
  while (true) {
    if (pending.at(id)) return true;
    if (!lost.empty()) {
      pending.erase(id);
      throw failure(request, "the store is lost: " + lost);
    }
    if (deadline.expired()) return false;
    if (!polling)
      turn(lock, deadline);
    else if (deadline.is_never())
      changed.wait(lock);
    else
      changed.wait_for(lock, deadline.remaining());
  }
}

// Polls once for everybody.
void StoreClient::Impl::turn(Lock& lock, const Deadline& deadline) {
  polling = true;
  const bool sends = connection.unsent_bytes() > 0;
  pollfd waited[] = {{connection.fd(), static_cast<short>(sends ? POLLIN | POLLOUT : POLLIN), 0},
                     {wake.get(), POLLIN, 0}};
  lock.unlock();
  const int ready = ::poll(waited, 2, deadline.poll_timeout_ms());
  const int error = errno;
  lock.lock();
  polling = false;
  if (ready < 0 && error != EINTR) lose(fmt::format("poll: {}", std::strerror(error)));
  if (ready > 0 && waited[1].revents != 0) {
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t got = ::read(wake.get(), &count, sizeof count);
  }
  if (ready > 0 && waited[0].revents != 0) receive();
  changed.notify_all();
}

void StoreClient::Impl::send(const Request& request) {
  if (!lost.empty()) return;
  connection.append(wire::encode(request));
  if (!connection.flush()) return lose(connection.why());
  if (connection.unsent_bytes() == 0 || !polling) return;
  // The thread in poll() does not know yet that there is something to write.
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake.get(), &one, sizeof one);
}

// Sends what is left, too.
void StoreClient::Impl::receive() {
  connection.flush();
  for (bool more = lost.empty(); more && lost.empty();) {
    more = connection.receive();
    while (const auto payload = connection.next()) deliver(*payload);
  }
  if (connection.over()) lose(connection.why());
}

void StoreClient::Impl::deliver(std::string_view payload) {
  std::optional<Response> response = wire::decode_response(payload);
  if (!response) return lose("it sent a malformed response");
  const auto entry = pending.find(response->id);
  if (entry != pending.end()) entry->second = std::move(*response);  // else: given up meanwhile
}

void StoreClient::Impl::lose(std::string why) {
  if (lost.empty()) lost = std::move(why);
}

// The deadline has passed. Tells the server to forget the wait; for several keys, asks which are missing. An
// answer that comes just now still counts.
Response StoreClient::Impl::give_up(Lock& lock, const Request& request, std::uint64_t id, TimePoint start) {
  std::vector<std::string> missing;
  if (request.op == Op::get || request.op == Op::wait) {
    Request cancel;
    cancel.op = Op::cancel;
    cancel.id = id;
    send(cancel);
    if (await(lock, id, request, Deadline::after(kCancelGrace))) {
      Response response = std::move(*pending.at(id));
      if (response.status != Status::cancelled) return response;
      missing = split_lines(response.value);
    }
  }
  pending.erase(id);
  const double seconds = std::chrono::duration<double>(steady_clock().now() - start).count();
  Request named = request;
  if (!missing.empty()) named.keys = missing;
  const std::string_view cause = missing.empty() ? "no answer from the server" : "nobody has set it";
  throw failure(named, fmt::format("the deadline passed after {:.1f} s: {}", seconds, cause));
}

StoreClient::StoreClient(const Endpoint& server, StoreClientOptions options, const Deadline& deadline)
    : impl_(std::make_unique<Impl>(server, options, deadline)) {}

StoreClient::~StoreClient() = default;

void StoreClient::set(std::string_view key, std::string_view value, const Deadline& deadline) {
  impl_->call({.op = Op::set, .keys = {std::string(key)}, .value = std::string(value), .expected = {}},
              deadline);
}

std::string StoreClient::get(std::string_view key, const Deadline& deadline) {
  return impl_->call({.op = Op::get, .keys = {std::string(key)}, .value = {}, .expected = {}}, deadline)
      .value;
}

std::optional<std::string> StoreClient::try_get(std::string_view key, const Deadline& deadline) {
  Response response =
      impl_->call({.op = Op::try_get, .keys = {std::string(key)}, .value = {}, .expected = {}}, deadline);
  if (response.status == Status::absent) return std::nullopt;
  return std::move(response.value);
}

void StoreClient::wait(const std::vector<std::string>& keys, const Deadline& deadline) {
  for (std::size_t start = 0; start < keys.size(); start += wire::kMaxWaitKeys) {
    const std::size_t count = std::min(wire::kMaxWaitKeys, keys.size() - start);
    const auto first = keys.begin() + static_cast<std::ptrdiff_t>(start);
    impl_->call({.op = Op::wait,
                 .keys = {first, first + static_cast<std::ptrdiff_t>(count)},
                 .value = {},
                 .expected = {}},
                deadline);
  }
}

std::int64_t StoreClient::add(std::string_view key, std::int64_t delta, const Deadline& deadline) {
  const Response response = impl_->call(
      {.op = Op::add, .keys = {std::string(key)}, .value = {}, .expected = {}, .delta = delta}, deadline);
  return std::stoll(response.value);
}

std::string StoreClient::compare_set(std::string_view key, std::optional<std::string_view> expected,
                                     std::string_view desired, const Deadline& deadline) {
  Request request{
      .op = Op::compare_set, .keys = {std::string(key)}, .value = std::string(desired), .expected = {}};
  if (expected) request.expected.emplace(*expected);
  return impl_->call(std::move(request), deadline).value;
}

bool StoreClient::remove(std::string_view key, const Deadline& deadline) {
  return impl_->call({.op = Op::remove, .keys = {std::string(key)}, .value = {}, .expected = {}}, deadline)
             .value == "1";
}

}  // namespace dtrain
