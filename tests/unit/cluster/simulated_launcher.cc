// A launcher's two halves: what StoreServer does around a leader, and what Member does around a session.
#include <algorithm>
#include <utility>

#include "cluster/quorum/voters.h"
#include "cluster/rendezvous/messages.h"
#include "tests/unit/cluster/simulated_job.h"

namespace dtrain::simulation {
namespace {

using namespace rendezvous;
using std::chrono::milliseconds;
using std::chrono::seconds;

// As Member's.
constexpr Duration kReconnectPause = milliseconds(20), kAskAgain = milliseconds(300);

Endpoint endpoint_of(int place) { return {"host", static_cast<std::uint16_t>(place + 1)}; }
int place_of(const Endpoint& endpoint) { return endpoint.port - 1; }

ServerOptions options_of(const Settings& settings, Leadership& leadership) {
  ServerOptions options;
  options.leadership = &leadership;
  options.rules.job = leadership.instance_id();
  options.rules.min_nodes = options.rules.max_nodes = settings.nodes;
  options.rules.spares = settings.spares;
  options.rules.max_restarts = 1'000'000;
  options.rules.lease = settings.lease;
  options.rules.lost_after = settings.lost_after;
  options.rules.last_call = seconds(5);
  options.rules.join_timeout = settings.join_timeout;
  return options;
}

}  // namespace

Launcher::Launcher(SimulatedJob& job, int place, std::uint64_t life)
    : job_(job),
      place_(place),
      life_(life),
      leadership_({instance_id(), "host" + std::to_string(place), job.settings_.lease, {}, {}}),
      table_({}, [this](std::uint64_t client, const wire::Response& answer) { respond(client, answer); }),
      observer_(options_of(job.settings_, leadership_), endpoint_of(place), place != 0, job.time_,
                job.time_) {}

void Launcher::begin() {
  serve_turn();
  announce();
  busy_ = true;
  join_first();
}

void Launcher::end(bool silently) {
  for (const auto& [id, connection] : clients_) job_.close_down(connection, silently);
  if (connection_) job_.close_up(connection_, silently);
}

void Launcher::reset_all_connections() {
  for (const auto& [id, connection] : clients_) doomed_.push_back(id);
  serve_turn();
}

std::string Launcher::text() const {
  std::string text = "place " + std::to_string(place_) + ": ";
  if (observer_.state().open())
    text += "leads term " + std::to_string(leadership_.term()) + " with voters: " +
            std::to_string(leadership_.leads() ? leadership_.voters()->members().size() : 0) + ", ";
  if (!session_) return text + "has not reached place 0";
  text += (session_->orphaned()      ? "looks for a leader, last "
           : session_->interrupted() ? "is cut off from "
                                     : "follows ") +
          std::to_string(server_);
  return text + (at_work_ < 0 ? "" : ", at work in round " + std::to_string(at_work_));
}

int Launcher::working() const { return job_.time_.now() < granted_until_ ? at_work_ : -1; }

// --- the store's server -----------------------------------------------------------------------------------

void Launcher::publish(const std::string& key, std::string value) {
  table_.apply(0, {.op = wire::Op::set, .keys = {key}, .value = std::move(value), .expected = {}});
}

void Launcher::forget(const std::string& key) {
  table_.apply(0, {.op = wire::Op::remove, .keys = {key}, .value = {}, .expected = {}});
}

void Launcher::expel(std::uint64_t client) { doomed_.push_back(client); }

void Launcher::respond(std::uint64_t client, const wire::Response& response) {
  const auto found = clients_.find(client);
  if (found == clients_.end()) return;
  job_.send_down(found->second, wire::encode(response));
}

void Launcher::serve(const ConnectionPtr& connection, const std::vector<std::string>& messages) {
  if (!connection->server_open) return;
  for (const std::string& message : messages) {
    const auto request = wire::decode_request(message);
    const std::string& key = request->keys.front();
    if (request->op == wire::Op::set && key.starts_with(kPrefix))
      respond(connection->id,
              {request->id, wire::Status::ok, observer_.on_set(*this, connection->id, key, request->value)});
    else
      table_.apply(connection->id, *request);
  }
  serve_turn();
}

// Of one who asks and goes.
std::string Launcher::answer(std::string_view key, const std::string& value) {
  const std::uint64_t client = ++job_.connections_;
  std::string answer = observer_.on_set(*this, client, key, value);
  observer_.on_leave(*this, client, true);
  serve_turn();
  return answer;
}

void Launcher::client_left(const ConnectionPtr& connection) {
  if (!std::exchange(connection->server_open, false)) return;
  clients_.erase(connection->id);
  table_.drop_client(connection->id);
  observer_.on_leave(*this, connection->id, true);
  serve_turn();
}

void Launcher::serve_turn() {
  after_serving();
  const TimePoint due = observer_.on_turn(*this, job_.time_.now());
  after_serving();
  job_.at_launcher(due, place_, life_, [turn = ++serve_turns_](Launcher* self) {
    if (self != nullptr && turn == self->serve_turns_) self->serve_turn();
  });
  job_.look_at(*this);
}

// Those whose connections are to be closed.
void Launcher::after_serving() {
  while (!doomed_.empty()) {
    const std::uint64_t client = doomed_.back();
    doomed_.pop_back();
    const auto found = clients_.find(client);
    if (found == clients_.end()) continue;
    const ConnectionPtr connection = found->second;
    job_.close_down(connection, false);
    clients_.erase(client);
    table_.drop_client(client);
    observer_.on_leave(*this, client, false);
  }
}

// Who leads tells so where newcomers look for the job.
void Launcher::announce() {
  if (leadership_.leads() && place_ != 0)
    job_.at_launcher(
        job_.network_.arrival(place_, 0), 0, std::nullopt,
        [claim = encode(LeaderAnnouncement{leadership_.term(), observer_.endpoint()})](Launcher* host) {
          if (host != nullptr) host->answer(kAnnouncementKey, claim);
        });
  job_.at_launcher(job_.time_.now() + seconds(1), place_, life_, [](Launcher* self) {
    if (self != nullptr) self->announce();
  });
}

// --- the member -------------------------------------------------------------------------------------------

void Launcher::join_first() {
  job_.connect(*this, 0, [this](const ConnectionPtr& connection) {
    if (!connection)
      return job_.at_launcher(job_.time_.now() + kAskAgain, place_, life_, [](Launcher* self) {
        if (self != nullptr) self->join_first();
      });
    NodeOffer offer;
    offer.node_rank = place_;
    offer.host = "host" + std::to_string(place_) + "/" + std::to_string(life_);
    offer.instance_id = instance_id();
    offer.standby = observer_.endpoint();
    connection_ = connection;
    leadership_.approach(endpoint_of(0));
    SessionTimes times;
    times.lease = job_.settings_.lease;
    times.join = job_.settings_.join_timeout;
    session_.emplace(offer, times, job_.time_.now(), &leadership_);
    busy_ = false;
    turn();
  });
}

void Launcher::receive(const ConnectionPtr& connection, const std::string& message) {
  if (connection != connection_ || busy_) return;
  session_->receive(message, job_.time_.now());
  if (session_->admitted() && !session_->interrupted()) granted_until_ = session_->lease_ends();
  const auto shown = decode_ack(leadership_.ack());
  if (!session_->joining() && !session_->interrupted() && shown && shown->match_index > 0)
    job_.note_heard(instance_id(), connection->server_life + 1000, shown->match_index);
  turn();
}

void Launcher::server_left(const ConnectionPtr& connection) {
  if (connection != connection_ || busy_) return;
  session_->interrupt("the connection has ended");
  turn();
}

void Launcher::wake_at(TimePoint when) {
  job_.at_launcher(when, place_, life_, [wake = ++wakes_](Launcher* self) {
    if (self != nullptr && wake == self->wakes_) self->turn();
  });
}

void Launcher::pause(Duration time) {
  job_.at_launcher(job_.time_.now() + time, place_, life_, [](Launcher* self) {
    if (self == nullptr) return;
    self->busy_ = false;
    self->turn();
  });
}

void Launcher::turn() {
  if (busy_) return;
  const TimePoint now = job_.time_.now();
  const TimePoint due = session_->tick(now);
  if (at_work_ >= 0 && now >= granted_until_) end_workers(137);
  flush();
  deliver();
  if (session_->ended()) return job_.gone(place_, false);
  if (session_->interrupted()) {
    leave_server();
    busy_ = true;
    if (session_->orphaned()) return look_for_leader(leadership_.acquire(now));
    return session_->elsewhere() ? go_elsewhere() : reconnect();
  }
  wake_at(at_work_ >= 0 ? std::min(due, granted_until_) : due);
}

void Launcher::flush() {
  std::vector<std::string> messages = std::exchange(session_->out(), {});
  if (connection_ && !messages.empty()) job_.send_up(connection_, std::move(messages));
}

void Launcher::deliver() {
  while (const auto bytes = session_->take()) act(*decode_leader_event(*bytes));
}

void Launcher::act(const LeaderEvent& event) {
  if (const auto* forming = std::get_if<Forming>(&event)) {
    say_later(milliseconds(200), [this, round = forming->round] {
      session_->say(Ready{round, 4711, "host"}, job_.time_.now());
    });
  } else if (const auto* start = std::get_if<Start>(&event)) {
    if (job_.time_.now() >= granted_until_) return;  // it may not
    at_work_ = start->round;
    leader_ = connection_->server_life + 1000;
    job_.note_start(*this, leader_, *start);
  } else if (const auto* stop = std::get_if<Stop>(&event)) {
    say_later(milliseconds(500), [this, round = stop->round] {
      if (at_work_ == round) end_workers(143);
    });
  } else if (const auto* lost = std::get_if<LeaseLost>(&event)) {
    job_.say("place " + std::to_string(place_) + ": " + lost->why);
  } else if (const auto* refused = std::get_if<Refused>(&event)) {
    job_.say("place " + std::to_string(place_) + ": " + refused->why);
  }
}

void Launcher::say_later(Duration slowest, std::function<void()> saying) {
  job_.at_launcher(job_.time_.now() + job_.random_time(Duration::zero(), slowest), place_, life_,
                   [saying = std::move(saying)](Launcher* self) {
                     if (self == nullptr || self->session_->ended()) return;
                     saying();
                     self->turn();
                   });
}

void Launcher::end_workers(int exit_code) {
  session_->say(Ended{std::exchange(at_work_, -1), exit_code}, job_.time_.now());
}

void Launcher::leave_server() {
  if (connection_) job_.close_up(connection_, false);
  connection_.reset();
}

void Launcher::reconnect() {
  job_.connect(*this, server_, [this](const ConnectionPtr& connection) {
    if (!connection) return pause(kReconnectPause);
    connection_ = connection;
    session_->resume(job_.time_.now());
    busy_ = false;
    turn();
  });
}

void Launcher::follow(int leader, const std::function<void()>& in_vain) {
  job_.connect(*this, leader, [this, leader, in_vain](const ConnectionPtr& connection) {
    if (!connection) return in_vain();
    connection_ = connection;
    server_ = leader;
    leadership_.approach(endpoint_of(leader));
    const bool has_slot = !session_->known().voters.empty();
    has_slot ? session_->resume(job_.time_.now()) : session_->rejoin(job_.time_.now());
    busy_ = false;
    turn();
  });
}

void Launcher::go_elsewhere() {
  const bool known = session_->elsewhere()->port != 0 && !std::exchange(referred_in_vain_, false);
  const int leader = known ? place_of(*session_->elsewhere()) : session_->admitted() ? server_ : 0;
  const auto go = [this, known, leader] {
    follow(leader, [this, known] {
      referred_in_vain_ = known;
      pause(kAskAgain);
    });
  };
  if (known) return go();
  job_.at_launcher(job_.time_.now() + kAskAgain, place_, life_, [go](Launcher* self) {
    if (self != nullptr) go();
  });
}

void Launcher::look_for_leader(Search search) {
  if (search.elected) {
    job_.say("place " + std::to_string(place_) + " is elected for " + std::to_string(search.elected->term));
    observer_.lead({std::move(*search.elected), session_->known(), session_->place()});
    search.leaders = {observer_.endpoint()};
  }
  if (!search.leaders.empty()) {
    const int leader = place_of(search.leaders.front());
    search.leaders.erase(search.leaders.begin());
    search.elected.reset();
    return follow(leader, [this, search] { look_for_leader(search); });
  }
  if (!search.request) return pause(job_.random_time(kReconnectPause, milliseconds(600)));
  job_.ask(*this, search, [this](const std::vector<VoteAnswer>& answers) {
    look_for_leader(leadership_.answered(answers, job_.time_.now()));
  });
}

}  // namespace dtrain::simulation
