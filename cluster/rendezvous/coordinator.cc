// Between the store's server and the state machine: sets become joins, beats and words, news become numbered
// events. Everything but waiting happens on the server's thread.
#include "cluster/rendezvous/coordinator.h"

#include <fmt/format.h>

#include <condition_variable>
#include <deque>
#include <mutex>

#include "cluster/rendezvous/membership.h"
#include "cluster/rendezvous/messages.h"
#include "cluster/rendezvous/session.h"
#include "cluster/store/store_server.h"
#include "runtime/base/error.h"

namespace dtrain::rendezvous {
namespace {

// A launcher that has not fetched an event after so long has lost its lease.
constexpr Duration kKeepEvents = std::chrono::seconds(60);  // after that

std::string where(const SocketAddress& address) {
  if (address.is_any()) return address.text() + " (every interface)";
  try {
    const std::string interface = route_to(address).interface;
    return interface.empty() ? address.text() : fmt::format("{} ({})", address.text(), interface);
  } catch (const Error&) {
    return address.text();
  }
}

JobRules rules_of(const CoordinatorOptions& options, const SocketAddress& address) {
  JobRules rules;
  rules.min_nodes = options.min_nodes;
  rules.max_nodes = options.max_nodes;
  rules.max_restarts = options.max_restarts;
  rules.join_timeout = options.join_timeout;
  rules.last_call = options.last_call;
  rules.lease = options.lease;
  rules.lost_after = options.lost_after;
  rules.form_within = options.form_within;
  rules.stop_within = options.stop_within;
  rules.settle = options.settle;
  rules.waiting_every = options.waiting_every;
  rules.launch_time_ns = options.launch_time_ns;
  rules.run_id = options.run_id;
  rules.hosts = options.hosts;
  rules.listening = where(address);
  return rules;
}

}  // namespace

struct Coordinator::Impl final : StoreObserver {
  Impl(const CoordinatorOptions& options, const SocketAddress& address)
      : membership(rules_of(options, address), steady_clock().now()),
        keep_events(options.lost_after + kKeepEvents) {}

  std::string_view prefix() const noexcept override { return kPrefix; }

  std::string on_set(StoreDesk& desk, std::uint64_t client, std::string_view key,
                     std::string_view value) override {
    const TimePoint now = steady_clock().now();
    std::string answer;
    if (key == kBeatKey) {
      membership.beat(client, now);
      return answer;
    }
    if (key == kJoinKey) {
      answer = join(client, value, now);
    } else if (key == kWordKey) {
      const NumberedWord numbered = split_word(value);
      if (const auto word = decode_word(numbered.word)) membership.hear(client, *word, now, numbered.number);
    } else if (key == kSilenceKey) {
      membership.leave(client, Departure::silent, now);
    }
    publish(desk, now);
    return answer;
  }

  // However the connection ended: a reset proves nothing, and the network can forge an end. Who leaves in
  // order has said so.
  void on_leave(StoreDesk& desk, std::uint64_t client, bool) override {
    const TimePoint now = steady_clock().now();
    membership.leave(client, Departure::broken, now);
    publish(desk, now);
  }

  TimePoint on_turn(StoreDesk& desk, TimePoint now) override {
    const TimePoint next = membership.tick(now);
    publish(desk, now);
    return next;
  }

  // A newcomer hears the news that its own coming makes.
  std::string join(std::uint64_t client, std::string_view value, TimePoint now) {
    const std::uint64_t first = next_event;
    const auto offer = decode_offer(value);
    Admission admission{
        -1, "the rendezvous did not understand the join; run the same dtrain on every node", {}};
    if (offer) admission = membership.join(client, *offer, now);
    return join_answer(first, encode(admission));
  }

  void publish(StoreDesk& desk, TimePoint now) {
    for (const News& news : membership.take_news()) {
      desk.publish(event_key(next_event), encode(news));
      published.push_back({next_event++, now});
    }
    for (const SeatId id : membership.take_lost()) desk.expel(id);
    while (!published.empty() && now - published.front().at > keep_events) {
      desk.forget(event_key(published.front().number));
      published.pop_front();
    }
    if (!membership.over()) return;
    const std::lock_guard lock(mutex);
    over = true;
    ended.notify_all();
  }

  struct Event {
    std::uint64_t number = 0;
    TimePoint at{};
  };
  Membership membership;
  const Duration keep_events;
  std::uint64_t next_event = 0;
  std::deque<Event> published;
  mutable std::mutex mutex;  // guards over
  mutable std::condition_variable ended;
  bool over = false;
  std::unique_ptr<StoreServer> server;  // last: it ends before what it calls
};

Coordinator::Coordinator(Listener listener, const CoordinatorOptions& options)
    : impl_(std::make_unique<Impl>(options, listener.address)) {
  StoreServerOptions store;
  store.token = options.token;
  store.insecure = options.insecure;
  store.job = options.job;
  store.observer = impl_.get();
  impl_->server = std::make_unique<StoreServer>(std::move(listener), std::move(store));
}

Coordinator::~Coordinator() = default;

const SocketAddress& Coordinator::address() const noexcept { return impl_->server->address(); }

bool Coordinator::wait_until_over(const Deadline& deadline) const {
  {
    std::unique_lock lock(impl_->mutex);
    const auto is_over = [&] { return impl_->over; };
    if (deadline.is_never())
      impl_->ended.wait(lock, is_over);
    else if (!impl_->ended.wait_until(lock, *deadline.at(), is_over))
      return false;
  }
  return impl_->server->wait_until_clients(0, deadline);
}

}  // namespace dtrain::rendezvous
