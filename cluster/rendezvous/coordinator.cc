// Between the store's server and the state machine: sets become joins, beats and words, news become numbered
// events. Everything but waiting happens on the server's thread.
#include "cluster/rendezvous/coordinator.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <set>

#include "cluster/rendezvous/boot_clock.h"
#include "cluster/rendezvous/herald.h"
#include "cluster/rendezvous/membership.h"
#include "cluster/rendezvous/messages.h"
#include "cluster/rendezvous/session.h"
#include "cluster/store/store_server.h"
#include "runtime/base/error.h"

namespace dtrain::rendezvous {
namespace {

// A launcher that has not fetched an event after so long has lost its lease.
constexpr Duration kKeepEvents = std::chrono::seconds(60);  // after that
// A successor that too few follow by then does not lead.
constexpr Duration kEstablish = std::chrono::seconds(5);
constexpr Duration kLookAtCouncil = std::chrono::milliseconds(50);
constexpr Duration kLookForMandate = std::chrono::seconds(1);

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
  rules.spares = options.spares;
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
  Impl(const CoordinatorOptions& options_, const SocketAddress& address, bool stands_by)
      : options(options_),
        rules(rules_of(options_, address)),
        own{address.host(), address.port()},
        keep_events(options_.lost_after + kKeepEvents) {
    if (!stands_by) membership.emplace(rules, steady_clock().now());
    leading = !stands_by;
  }

  std::string_view prefix() const noexcept override { return kPrefix; }

  std::string on_set(StoreDesk& desk, std::uint64_t client, std::string_view key,
                     std::string_view value) override {
    clients.insert(client);
    take_office(desk);
    if (key == kVoteKey) return vote(value);
    if (key == kClaimKey) return hear_claim(desk, value);
    if (!membership) return key == kJoinKey ? refer() : encode(Grant{0, Duration::zero()});
    const TimePoint now = steady_clock().now();
    std::string answer;
    if (key == kJoinKey) {
      answer = join(client, value, now);
    } else if (key == kBeatKey) {
      beat(client, value, now);
    } else if (key == kWordKey) {
      const NumberedWord numbered = split_word(value);
      if (const auto word = decode_word(numbered.word)) membership->hear(client, *word, now, numbered.number);
    } else if (key == kSilenceKey) {
      membership->leave(client, Departure::silent, now);
    }
    // A heartbeat alone is no news; of a council's it may be what others wait for.
    if (key != kBeatKey || council) publish(desk, now);
    if (key != kJoinKey && options.voter != nullptr) answer = encode(grant());
    return answer;
  }

  // However the connection ended: a reset proves nothing, and the network can forge an end. Who leaves in
  // order has said so.
  void on_leave(StoreDesk& desk, std::uint64_t client, bool) override {
    clients.erase(client);
    if (!membership) return;
    const TimePoint now = steady_clock().now();
    membership->leave(client, Departure::broken, now);
    publish(desk, now);
  }

  TimePoint on_turn(StoreDesk& desk, TimePoint now) override {
    take_office(desk);
    if (!membership) return now + kLookForMandate;
    const TimePoint next = membership->tick(now);
    publish(desk, now);
    return next;
  }

  // A newcomer hears the news that its own coming makes.
  std::string join(std::uint64_t client, std::string_view value, TimePoint now) {
    const auto offer = decode_offer(value);
    const std::uint64_t first = offer && offer->resumes && offer->epoch != epoch() ? 0 : next_event;
    Admission admission{
        -1, "the rendezvous did not understand the join; run the same dtrain on every node", {}};
    if (offer) admission = membership->join(client, *offer, now);
    tell_leadership = tell_leadership || (council && offer && !offer->resumes);
    admission.epoch = epoch();
    admission.grant = grant();
    return join_answer(first, encode(admission));
  }

  void beat(std::uint64_t client, std::string_view value, TimePoint now) {
    membership->beat(client, now);
    const auto echo = council ? decode_echo(value) : std::nullopt;
    if (echo) council->hear(membership->incarnation_of(client), *echo);
  }

  // Nothing is promised for longer than a majority stands behind it.
  Grant grant() const {
    if (options.voter == nullptr) return {};
    const TimePoint now = boot_clock().now();
    const std::int64_t stamp = now.time_since_epoch().count();
    if (!membership) return {0, Duration::zero()};
    if (!council) return {stamp, Duration::max()};
    const TimePoint until = council->leads_until();
    if (until == TimePoint::max()) return {stamp, Duration::max()};
    return {stamp, until > now ? until - now : Duration::zero()};
  }

  // Word of the others is a little old: without this every lease would be so much shorter. A successor waits
  // for it.
  Duration slack() const noexcept { return options.lease / 8; }

  std::uint64_t epoch() const noexcept { return options.voter == nullptr ? 0 : own_epoch; }

  // --- who leads ----------------------------------------------------------------------------------------

  std::string vote(std::string_view value) {
    const auto request = decode_vote_request(value);
    if (!request || options.voter == nullptr) return {};
    VoteAnswer answer;
    if (membership && council) {
      answer.promised = answer.leads = own_epoch;
      answer.leader = own;
    } else {
      answer = options.voter->answer(*request, boot_clock().now());
    }
    answer.incarnation = options.incarnation;
    return encode(answer);
  }

  std::string hear_claim(StoreDesk& desk, std::string_view value) {
    const auto claim = decode_claim(value);
    if (!claim || options.voter == nullptr) return {};
    options.voter->hear(*claim);
    // Begun where newcomers begin, while the job goes on elsewhere.
    if (membership && !membership->formed() && claim->epoch > own_epoch) depose(desk);
    return {};
  }

  std::string refer() const {
    Admission admission{-1, {}, {}};
    admission.elsewhere = true;
    if (options.voter != nullptr) {
      admission.leader = options.voter->leader().leader;
      if (admission.leader == own) admission.leader = {};
    }
    return join_answer(0, encode(admission));
  }

  void depose(StoreDesk& desk) {
    membership.reset();
    council.reset();
    herald.reset();
    queue.clear();
    for (const std::uint64_t client : clients) desk.expel(client);
    clients.clear();
    established = false;
    const std::lock_guard lock(mutex);
    leading = false;
    ended.notify_all();
  }

  // A mandate that lead() has left.
  void take_office(StoreDesk& desk) {
    std::optional<Mandate> mandate;
    {
      const std::lock_guard lock(mutex);
      mandate.swap(elected);
    }
    if (!mandate || mandate->epoch <= own_epoch) return;
    if (membership) depose(desk);
    own_epoch = mandate->epoch;
    const TimePoint now = steady_clock().now();
    Inheritance inheritance;
    inheritance.known = mandate->known.leadership;
    inheritance.heard = now - mandate->heard_ago + slack();
    inheritance.host_place = mandate->place;
    std::vector<Delegate> members = mandate->known.leadership.council;
    inheritance.lost = fmt::format(
        "the launcher on host {}, which led the job, is lost: not heard of for {:.1f} s; host {} leads now",
        members.empty() ? "?" : members.front().host,
        std::chrono::duration<double>(mandate->heard_ago).count(), mandate->host);
    std::stable_partition(members.begin(), members.end(),
                          [&](const Delegate& one) { return one.incarnation == options.incarnation; });
    for (const Event& event : published) desk.forget(event_key(event.number));
    published.clear();
    next_event = 0;
    membership.emplace(rules, inheritance, now);
    council.emplace(std::move(members), options.lease + slack(), std::nullopt);
    establish_until = boot_clock().now() + kEstablish;
    established = false;
    tell_leadership = true;
    StoreClientOptions store;
    store.token = options.token;
    store.insecure = options.insecure;
    store.job = options.job;
    store.role = "launcher";
    if (options.meeting_point.port != 0 && !(options.meeting_point == own))
      herald = std::make_unique<Herald>(options.meeting_point, std::move(store), Claim{own_epoch, own});
    const std::lock_guard lock(mutex);
    leading = true;
  }

  // False when this one does not lead any more.
  bool keep_office(StoreDesk& desk) {
    // What has been said is said: who has not heard the end yet may still do so.
    if (!council || (membership->over() && queue.empty())) return true;
    const TimePoint now = boot_clock().now();
    const bool followed = council->leads_until() > now;
    established = established || followed;
    if (membership->abdicated() || (!followed && (established || now >= establish_until))) {
      depose(desk);
      return false;
    }
    if (!established || now < next_look) return true;
    next_look = now + kLookAtCouncil;
    tell_leadership = council->adapt(delegates(), next_event + 1) || tell_leadership;
    membership->set_successors(council->has_successors());
    return true;
  }

  std::vector<Delegate> delegates() const { return membership->delegates(options.incarnation); }

  void found_council() {
    std::vector<Delegate> members = delegates();
    if (members.size() >= kMostCouncil) members.resize(kMostCouncil - 1);
    members.insert(members.begin(), Delegate{options.incarnation, options.host, own});
    council.emplace(std::move(members), options.lease + slack(), boot_clock().now());
    established = true;
    membership->set_successors(council->has_successors());
    tell_leadership = true;
  }

  // --- news ---------------------------------------------------------------------------------------------

  void publish(StoreDesk& desk, TimePoint now) {
    for (News& news : membership->take_news()) queue.push_back(std::move(news));
    for (const SeatId id : membership->take_lost()) desk.expel(id);
    const bool forms = std::any_of(queue.begin(), queue.end(),
                                   [](const News& news) { return std::holds_alternative<Forming>(news); });
    if (forms && options.voter != nullptr && !council) found_council();
    if (!keep_office(desk)) return;
    if (std::exchange(tell_leadership, false)) {
      Leadership leadership = membership->leadership();
      leadership.epoch = own_epoch;
      leadership.council = council->members();
      tell(desk, leadership, now);
    }
    while (!queue.empty() && established_or_alone()) {
      // A round that begins must be known to whoever may succeed, and so must those who take part in it.
      if (std::holds_alternative<Start>(queue.front()) && council && !council->decided(formed_at)) break;
      if (std::holds_alternative<Forming>(queue.front())) formed_at = next_event + 1;
      tell(desk, queue.front(), now);
      queue.pop_front();
    }
    while (!published.empty() && now - published.front().at > keep_events) {
      desk.forget(event_key(published.front().number));
      published.pop_front();
    }
    if (!membership->over() || !queue.empty()) return;
    const std::lock_guard lock(mutex);
    over = true;
    ended.notify_all();
  }

  bool established_or_alone() const { return !council || established; }

  void tell(StoreDesk& desk, const News& news, TimePoint now) {
    desk.publish(event_key(next_event), encode(news));
    published.push_back({next_event++, now});
  }

  struct Event {
    std::uint64_t number = 0;
    TimePoint at{};
  };
  const CoordinatorOptions options;
  const JobRules rules;
  const Endpoint own;
  std::optional<Membership> membership;  // while this one leads
  std::optional<Council> council;        // from the first round on, where there is succession
  std::unique_ptr<Herald> herald;
  std::uint64_t own_epoch = 1;
  bool established = false;  // a majority follows
  TimePoint establish_until{}, next_look{};
  bool tell_leadership = false;
  std::deque<News> queue;
  std::uint64_t formed_at = 0;
  std::set<std::uint64_t> clients;
  const Duration keep_events;
  std::uint64_t next_event = 0;
  std::deque<Event> published;
  mutable std::mutex mutex;  // guards over, leading and elected
  mutable std::condition_variable ended;
  bool over = false, leading = false;
  std::optional<Mandate> elected;
  std::unique_ptr<StoreServer> server;  // last: it ends before what it calls
};

Coordinator::Coordinator(Listener listener, const CoordinatorOptions& options, bool stands_by)
    : impl_(std::make_unique<Impl>(options, listener.address, stands_by)) {
  StoreServerOptions store;
  store.token = options.token;
  store.insecure = options.insecure;
  store.job = options.job;
  store.observer = impl_.get();
  impl_->server = std::make_unique<StoreServer>(std::move(listener), std::move(store));
}

Coordinator::~Coordinator() = default;

const SocketAddress& Coordinator::address() const noexcept { return impl_->server->address(); }

Endpoint Coordinator::endpoint() const { return impl_->own; }

void Coordinator::lead(Mandate mandate) {
  const std::lock_guard lock(impl_->mutex);
  impl_->elected = std::move(mandate);
  impl_->leading = true;
}

bool Coordinator::wait_until_over(const Deadline& deadline) const {
  {
    std::unique_lock lock(impl_->mutex);
    const auto is_over = [&] { return impl_->over || !impl_->leading; };
    if (deadline.is_never())
      impl_->ended.wait(lock, is_over);
    else if (!impl_->ended.wait_until(lock, *deadline.at(), is_over))
      return false;
    if (!impl_->over) return true;
  }
  return impl_->server->wait_until_clients(0, deadline);
}

}  // namespace dtrain::rendezvous
