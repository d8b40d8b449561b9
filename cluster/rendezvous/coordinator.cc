// Between the store's server and the state machine: sets become joins, beats and words, news become numbered
// events. Everything but waiting happens on the server's thread.
#include "cluster/rendezvous/coordinator.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <set>

#include "cluster/rendezvous/boot_clock.h"
#include "cluster/rendezvous/herald.h"
#include "cluster/rendezvous/messages.h"
#include "cluster/rendezvous/office.h"
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
        own{address.host(), address.port()},
        office(rules_of(options_, address), options_.office, steady_clock().now()),
        keep_events(options_.lost_after + kKeepEvents) {
    if (options.office == nullptr || options.office->empty()) {
      if (!stands_by) office.found(steady_clock().now());
    } else if (office.council()) {
      // They follow as before, which their first heartbeats show.
      council.emplace(office.council()->members, options.lease + slack(), office.council()->changed_at,
                      office.council()->alone);
      establish_until = boot_clock().now() + kEstablish;
      tell_leadership = true;
    }
    leading = office.open();
    if (council) send_herald();
  }

  std::string_view prefix() const noexcept override { return kPrefix; }

  std::string on_set(StoreDesk& desk, std::uint64_t client, std::string_view key,
                     std::string_view value) override {
    clients.insert(client);
    take_office(desk);
    if (key == kVoteKey) return vote(value);
    if (key == kClaimKey) return hear_claim(desk, value);
    if (!office.open()) return key == kJoinKey ? refer() : encode(Grant{0, Duration::zero()});
    const TimePoint now = steady_clock().now();
    std::string answer;
    if (key == kJoinKey) {
      answer = join(client, value, now);
    } else if (key == kBeatKey) {
      beat(client, value, now);
    } else if (key == kWordKey) {
      const NumberedWord numbered = split_word(value);
      office.hear(client, numbered.word, numbered.number, now);
    } else if (key == kSilenceKey) {
      office.leave(client, Departure::silent, now);
    } else if (key == kHeardKey) {
      office.heard_the_end(client);
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
    if (!office.open()) return;
    const TimePoint now = steady_clock().now();
    office.leave(client, Departure::broken, now);
    publish(desk, now);
  }

  TimePoint on_turn(StoreDesk& desk, TimePoint now) override {
    take_office(desk);
    if (!office.open()) return now + kLookForMandate;
    const TimePoint next = office.tick(now);
    publish(desk, now);
    return next;
  }

  // A newcomer hears the news that its own coming makes.
  std::string join(std::uint64_t client, std::string_view value, TimePoint now) {
    const auto offer = decode_offer(value);
    Admission admission = office.join(client, value, now);
    const std::uint64_t first = !offer                    ? office.next_event()
                                : !offer->resumes         ? office.first_event_of(offer->incarnation)
                                : offer->epoch != epoch() ? 0
                                                          : office.next_event();
    tell_leadership = tell_leadership || (council && offer && !offer->resumes);
    admission.epoch = epoch();
    admission.grant = grant();
    return join_answer(first, encode(admission));
  }

  void beat(std::uint64_t client, std::string_view value, TimePoint now) {
    office.beat(client, now);
    const auto echo = council ? decode_echo(value) : std::nullopt;
    if (!echo) return;
    council->hear(office.incarnation_of(client), *echo);
    note_council();
  }

  // Nothing is promised for longer than a majority stands behind it.
  Grant grant() const {
    if (options.voter == nullptr) return {};
    const TimePoint now = boot_clock().now();
    const std::int64_t stamp = now.time_since_epoch().count();
    if (!office.open()) return {0, Duration::zero()};
    if (!council) return {stamp, Duration::max()};
    const TimePoint until = council->leads_until();
    if (until == TimePoint::max()) return {stamp, Duration::max()};
    return {stamp, until > now ? until - now : Duration::zero()};
  }

  // Word of the others is a little old: without this every lease would be so much shorter. A successor waits
  // for it.
  Duration slack() const noexcept { return options.lease / 8; }

  std::uint64_t epoch() const noexcept { return options.voter == nullptr ? 0 : office.epoch(); }

  // --- who leads ----------------------------------------------------------------------------------------

  std::string vote(std::string_view value) {
    const auto request = decode_vote_request(value);
    if (!request || options.voter == nullptr) return {};
    VoteAnswer answer;
    if (office.open() && council) {
      answer.promised = answer.leads = office.epoch();
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
    if (office.open() && !office.membership().formed() && claim->epoch > office.epoch()) depose(desk);
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
    for (const Office::Event& event : office.events()) desk.forget(event_key(event.number));
    office.close();
    council.reset();
    herald.reset();
    for (const std::uint64_t client : clients) desk.expel(client);
    clients.clear();
    established = false;
    const std::lock_guard lock(mutex);
    leading = false;
    ended.notify_all();
  }

  // A mandate that lead() has left.
  void take_office(StoreDesk& desk) {
    if (std::exchange(taken_up, false)) {
      for (const Office::Event& event : office.events()) desk.publish(event_key(event.number), event.news);
    }
    std::optional<Mandate> mandate;
    {
      const std::lock_guard lock(mutex);
      mandate.swap(elected);
    }
    if (!mandate || mandate->epoch <= office.epoch()) return;
    if (office.open()) depose(desk);
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
    office.inherit(mandate->epoch, inheritance, now);
    council.emplace(std::move(members), options.lease + slack(), std::nullopt);
    note_council();
    establish_until = boot_clock().now() + kEstablish;
    established = false;
    tell_leadership = true;
    send_herald();
    const std::lock_guard lock(mutex);
    leading = true;
  }

  // To where newcomers look for the job, unless that is here.
  void send_herald() {
    StoreClientOptions store;
    store.token = options.token;
    store.insecure = options.insecure;
    store.job = options.job;
    store.role = "launcher";
    if (options.meeting_point.port != 0 && !(options.meeting_point == own))
      herald = std::make_unique<Herald>(options.meeting_point, std::move(store), Claim{office.epoch(), own});
  }

  void note_council() { office.set_council({council->members(), council->changed_at(), council->alone()}); }

  // False when this one does not lead any more.
  bool keep_office(StoreDesk& desk) {
    // What has been said is said: who has not heard the end yet may still do so.
    if (!council || (office.membership().over() && office.next() == nullptr)) return true;
    const TimePoint now = boot_clock().now();
    const bool followed = council->leads_until() > now;
    established = established || followed;
    if (office.membership().abdicated() || (!followed && (established || now >= establish_until))) {
      depose(desk);
      return false;
    }
    if (!established || now < next_look) return true;
    next_look = now + kLookAtCouncil;
    tell_leadership = council->adapt(delegates(), office.next_event() + 1, now) || tell_leadership;
    note_council();
    office.set_successors(council->has_successors());
    return true;
  }

  std::vector<Delegate> delegates() const { return office.membership().delegates(options.incarnation); }

  void found_council() {
    std::vector<Delegate> members = delegates();
    if (members.size() >= kMostCouncil) members.resize(kMostCouncil - 1);
    members.insert(members.begin(), Delegate{options.incarnation, options.host, own});
    council.emplace(std::move(members), options.lease + slack(), boot_clock().now());
    note_council();
    established = true;
    office.set_successors(council->has_successors());
    tell_leadership = true;
  }

  // --- news ---------------------------------------------------------------------------------------------

  void publish(StoreDesk& desk, TimePoint now) {
    for (const std::uint64_t client : office.take_lost()) desk.expel(client);
    if (office.forms() && options.voter != nullptr && !council) found_council();
    if (!keep_office(desk)) return;
    if (std::exchange(tell_leadership, false)) {
      Leadership leadership = office.membership().leadership();
      leadership.epoch = office.epoch();
      leadership.council = council->members();
      tell(desk, office.tell(leadership, now));
    }
    while (office.next() != nullptr && established_or_alone()) {
      // A round that begins must be known to whoever may succeed, and so must those who take part in it.
      if (std::holds_alternative<Start>(*office.next()) && council && !council->decided(office.formed_at()))
        break;
      tell(desk, office.tell_next(now));
    }
    while (!office.events().empty() && now - office.events().front().at > keep_events) {
      desk.forget(event_key(office.events().front().number));
      office.forget_first();
    }
    if (!office.membership().over() || office.next() != nullptr) return;
    const std::size_t left = office.unheard();
    const std::lock_guard lock(mutex);
    over = true;
    unheard = left;
    ended.notify_all();
  }

  bool established_or_alone() const { return !council || established; }

  static void tell(StoreDesk& desk, const Office::Event& event) {
    desk.publish(event_key(event.number), event.news);
  }

  const CoordinatorOptions options;
  const Endpoint own;
  Office office;
  bool taken_up = office.taken_up();  // and not yet told again what it had told
  std::optional<Council> council;     // from the first round on, where there is succession
  std::unique_ptr<Herald> herald;
  bool established = false;  // a majority follows
  TimePoint establish_until{}, next_look{};
  bool tell_leadership = false;
  std::set<std::uint64_t> clients;
  const Duration keep_events;
  mutable std::mutex mutex;  // guards over, unheard, leading and elected
  mutable std::condition_variable ended;
  bool over = false, leading = false;
  std::size_t unheard = 0;  // launchers that have not heard the end
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

bool Coordinator::leads() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->leading && !impl_->over;
}

bool Coordinator::wait_until_over(const Deadline& deadline) const {
  {
    std::unique_lock lock(impl_->mutex);
    const auto is_over = [&] { return (impl_->over && impl_->unheard == 0) || !impl_->leading; };
    if (deadline.is_never())
      impl_->ended.wait(lock, is_over);
    else if (!impl_->ended.wait_until(lock, *deadline.at(), is_over))
      return impl_->over;
    if (!impl_->over) return true;
  }
  return impl_->server->wait_until_clients(0, deadline);
}

}  // namespace dtrain::rendezvous
