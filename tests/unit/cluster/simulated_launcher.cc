// A launcher's two halves: what StoreServer does around a coordinator, and what Member does around a session.
#include <algorithm>
#include <utility>

#include "cluster/rendezvous/messages.h"
#include "cluster/rendezvous/succession.h"
#include "tests/unit/cluster/simulated_job.h"

namespace dtrain::simulation {
namespace {

using namespace rendezvous;
using std::chrono::milliseconds;
using std::chrono::seconds;

// As Member's.
constexpr Duration kReconnectPause = milliseconds(20), kAskAgain = milliseconds(300),
                   kTurn = milliseconds(300);
constexpr int kAskLostLeader = 4;

Endpoint endpoint_of(int place) { return {"host", static_cast<std::uint16_t>(place + 1)}; }
int place_of(const Endpoint& endpoint) { return endpoint.port - 1; }

CoordinatorOptions options_of(const Settings& settings, int place, std::uint64_t incarnation, Voter& voter) {
  CoordinatorOptions options;
  options.lease = settings.lease;
  options.lost_after = settings.lost_after;
  options.voter = &voter;
  options.incarnation = incarnation;
  options.host = "host" + std::to_string(place);
  return options;
}

JobRules rules_of(const Settings& settings, std::uint64_t incarnation) {
  JobRules rules;
  rules.job = incarnation;
  rules.min_nodes = rules.max_nodes = settings.nodes;
  rules.spares = settings.spares;
  rules.max_restarts = 1'000'000;
  rules.lease = settings.lease;
  rules.lost_after = settings.lost_after;
  rules.last_call = seconds(5);
  rules.join_timeout = settings.join_timeout;
  return rules;
}

}  // namespace

Launcher::Launcher(SimulatedJob& job, int place, std::uint64_t life)
    : job_(job),
      place_(place),
      life_(life),
      table_({}, [this](std::uint64_t client, const wire::Response& answer) { respond(client, answer); }),
      observer_(options_of(job.settings_, place, incarnation(), voter_), endpoint_of(place),
                rules_of(job.settings_, incarnation()), place != 0, job.time_, job.time_) {}

void Launcher::begin() {
  serve_turn();
  herald();
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
  if (observer_.office().open())
    text += "leads epoch " + std::to_string(observer_.office().epoch()) + " with a council of " +
            std::to_string(observer_.council() ? observer_.council()->members().size() : 0) + ", ";
  if (!session_) return text + "has not reached place 0";
  text += (session_->orphaned()      ? "looks for a leader, last "
           : session_->interrupted() ? "is cut off from "
                                     : "follows ") +
          std::to_string(server_) + " in epoch " + std::to_string(session_->epoch());
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
  std::string bytes;
  found->second->server_writer.append(bytes, wire::encode(response));
  job_.send_down(found->second, std::move(bytes));
}

void Launcher::serve(const ConnectionPtr& connection, const std::string& bytes) {
  if (!connection->server_open) return;
  connection->server_reader.feed(bytes);
  std::string_view payload;
  while (connection->server_reader.next(payload) == wire::FrameReader::Result::frame) {
    const auto request = wire::decode_request(payload);
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
void Launcher::herald() {
  if (observer_.office().open() && observer_.council() && place_ != 0)
    job_.at_launcher(job_.network_.arrival(place_, 0), 0, std::nullopt,
                     [claim = encode(observer_.office().epoch(), observer_.endpoint())](Launcher* host) {
                       if (host != nullptr) host->answer(kClaimKey, claim);
                     });
  job_.at_launcher(job_.time_.now() + seconds(1), place_, life_, [](Launcher* self) {
    if (self != nullptr) self->herald();
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
    offer.incarnation = incarnation();
    offer.standby = observer_.endpoint();
    connection_ = connection;
    voter_.set_leader(endpoint_of(0));
    SessionTimes times;
    times.lease = job_.settings_.lease;
    times.join = job_.settings_.join_timeout;
    session_.emplace(wire::FrameReader(MacKey("down")), wire::FrameWriter(MacKey("up")), offer, times,
                     job_.time_.now());
    busy_ = false;
    turn();
  });
}

void Launcher::receive(const ConnectionPtr& connection, const std::string& bytes) {
  if (connection != connection_ || busy_) return;
  voter_.with(*session_, job_.time_.now(), [&] { session_->receive(bytes, job_.time_.now()); });
  if (session_->admitted() && !session_->interrupted()) granted_until_ = session_->lease_ends();
  const bool follows = !session_->joining() && !session_->interrupted();
  if (follows && session_->epoch() != 0 && session_->known().epoch == session_->epoch())
    job_.note_heard(incarnation(), connection->server_life + 1000, session_->known().events);
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
  TimePoint due{};
  voter_.with(*session_, now, [&] { due = session_->tick(now); });
  if (at_work_ >= 0 && now >= granted_until_) end_workers(137);
  flush();
  deliver();
  if (session_->ended()) return job_.gone(place_, false);
  if (!session_->orphaned()) orphaned_at_.reset();
  if (session_->interrupted()) {
    leave_server();
    busy_ = true;
    if (session_->orphaned()) return look_for_leader();
    return session_->elsewhere() ? go_elsewhere() : reconnect();
  }
  wake_at(at_work_ >= 0 ? std::min(due, granted_until_) : due);
}

void Launcher::flush() {
  std::string bytes = std::exchange(session_->out(), {});
  if (connection_ && !bytes.empty()) job_.send_up(connection_, std::move(bytes));
}

void Launcher::deliver() {
  while (const auto bytes = session_->take()) act(*decode_news(*bytes));
}

void Launcher::act(const News& news) {
  if (const auto* forming = std::get_if<Forming>(&news)) {
    say_later(milliseconds(200), [this, round = forming->round] {
      session_->say(Ready{round, 4711, "host"}, job_.time_.now());
    });
  } else if (const auto* start = std::get_if<Start>(&news)) {
    if (job_.time_.now() >= granted_until_) return;  // it may not
    at_work_ = start->round;
    leader_ = connection_->server_life + 1000;
    job_.note_start(*this, leader_, *start);
  } else if (const auto* stop = std::get_if<Stop>(&news)) {
    say_later(milliseconds(500), [this, round = stop->round] {
      if (at_work_ == round) end_workers(143);
    });
  } else if (const auto* lost = std::get_if<LeaseLost>(&news)) {
    job_.say("place " + std::to_string(place_) + ": " + lost->why);
  } else if (const auto* refused = std::get_if<Refused>(&news)) {
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
    session_->resume(wire::FrameReader(MacKey("down")), wire::FrameWriter(MacKey("up")), job_.time_.now());
    busy_ = false;
    turn();
  });
}

void Launcher::follow(int leader, const std::function<void()>& in_vain) {
  job_.connect(*this, leader, [this, leader, in_vain](const ConnectionPtr& connection) {
    if (!connection) return in_vain();
    connection_ = connection;
    server_ = leader;
    voter_.set_leader(endpoint_of(leader));
    const bool has_seat = session_->known().epoch != 0 && !session_->known().leadership.council.empty();
    wire::FrameReader reader(MacKey("down"));
    wire::FrameWriter writer(MacKey("up"));
    has_seat ? session_->resume(std::move(reader), std::move(writer), job_.time_.now())
             : session_->rejoin(std::move(reader), std::move(writer), job_.time_.now());
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

// --- elections --------------------------------------------------------------------------------------------

bool Launcher::knows_better(std::uint64_t epoch) const {
  return epoch > session_->epoch() && voter_.may_follow(epoch);
}

void Launcher::look_for_leader() {
  if (!orphaned_at_) orphaned_at_ = job_.time_.now();
  const Claim told = voter_.leader();
  if (knows_better(told.epoch)) return follow(place_of(told.leader), [this] { ask_council(); });
  ask_council();
}

void Launcher::ask_council() {
  const auto& council = session_->known().leadership.council;
  const auto own = std::find_if(council.begin(), council.end(),
                                [this](const Delegate& one) { return one.incarnation == incarnation(); });
  const auto turns = std::max<std::ptrdiff_t>(own - council.begin(), 1) - 1;
  VoteRequest request{0, incarnation(), session_->epoch(), 0};
  if (own != council.end() && job_.time_.now() - *orphaned_at_ >= turns * kTurn)
    if (const auto stands = voter_.stand(incarnation(), job_.time_.now(), true); stands.epoch != 0)
      request = stands;
  std::vector<int> others;
  const bool all = attempts_++ % kAskLostLeader == kAskLostLeader - 1;
  for (const Delegate& one : council) {
    if (one.incarnation != incarnation() && (all || &one != council.data()))
      others.push_back(place_of(one.at));
  }
  job_.ask(*this, others, request, council.size() / 2,
           [this, others, request](std::vector<VoteAnswer> answers) {
             for (const VoteAnswer& answer : answers) voter_.hear_of(answer.promised);
             const auto& members = session_->known().leadership.council;
             if (follow_one_of(answers)) return;
             if (!request.probe || !elects(members, incarnation(), answers)) return look_again();
             const VoteRequest vote = voter_.stand(incarnation(), job_.time_.now(), false);
             if (vote.epoch == 0) return look_again();
             job_.ask(*this, others, vote, members.size() / 2,
                      [this, vote](std::vector<VoteAnswer> votes) { take_votes(vote, std::move(votes)); });
           });
}

void Launcher::take_votes(const VoteRequest& request, std::vector<VoteAnswer> answers) {
  for (const VoteAnswer& answer : answers) voter_.hear_of(answer.promised);
  const bool elected =
      voter_.settle(elects(session_->known().leadership.council, incarnation(), answers), job_.time_.now());
  if (!elected) return follow_one_of(answers) ? void() : look_again();
  Duration heard_ago = voter_.heard_ago(job_.time_.now());
  for (const VoteAnswer& answer : answers) {
    if (answer.granted) heard_ago = std::min(heard_ago, answer.heard_ago);
  }
  job_.say("place " + std::to_string(place_) + " is elected for " + std::to_string(request.epoch));
  observer_.lead({request.epoch, heard_ago, session_->known(), session_->place(), "host"});
  follow(place_, [this] { look_again(); });
}

bool Launcher::follow_one_of(const std::vector<VoteAnswer>& answers) {
  const auto leader = std::find_if(answers.begin(), answers.end(),
                                   [this](const VoteAnswer& answer) { return knows_better(answer.leads); });
  if (leader == answers.end()) return false;
  follow(place_of(leader->leader), [this] { look_again(); });
  return true;
}

void Launcher::look_again() { pause(job_.random_time(kReconnectPause, milliseconds(600))); }

}  // namespace dtrain::simulation
