// The network between launchers, what befalls them, and what must hold all the same.
#include "tests/unit/cluster/simulated_job.h"

#include <algorithm>
#include <set>
#include <utility>

#include "cluster/rendezvous/messages.h"

namespace dtrain::simulation {
namespace {

using namespace rendezvous;
using std::chrono::milliseconds;
using std::chrono::seconds;

// As Member's and tune_stream()'s.
constexpr Duration kOneAttempt = milliseconds(500), kAsk = milliseconds(800), kSilence = seconds(15);
constexpr std::size_t kToldLines = 60;

double seconds_of(TimePoint time) { return std::chrono::duration<double>(time.time_since_epoch()).count(); }

}  // namespace

SimulatedJob::SimulatedJob(unsigned seed, Settings settings)
    : settings_(settings), random_(seed), network_(time_, random_, settings.slowest_message) {
  for (int place = 0; place < places(); ++place) start(place);
}

void SimulatedJob::run(Duration faults, Duration patience) {
  const auto wrong = [this] { return !violation_.empty(); };
  time_.after(settings_.between_faults, [this] { fault(); });
  time_.run_until(time_.now() + faults, wrong);
  faults_ = false;
  time_.run_until(time_.now() + patience, [&] { return wrong() || complete(); });
}

bool SimulatedJob::complete() const {
  std::map<std::pair<std::uint64_t, int>, int> working;
  for (const auto& [place, launcher] : launchers_) {
    if (launcher->working() >= 0) ++working[{founder_of_.at(launcher->leader()), launcher->working()}];
  }
  return working.size() == 1 && working.begin()->second == settings_.nodes;
}

std::size_t SimulatedJob::rounds() const {
  std::size_t rounds = 0;
  for (const auto& [founder, job] : jobs_) rounds += job.started.size();
  return rounds;
}

std::size_t SimulatedJob::elections() const {
  std::size_t leaders = 0;
  for (const auto& [founder, job] : jobs_) leaders += job.leaders.size();
  return leaders - jobs_.size();
}

std::string SimulatedJob::text() const {
  std::string text = violation_ + "\n";
  for (const auto& [place, launcher] : launchers_) text += launcher->text() + "\n";
  const std::size_t first = story_.size() - std::min(story_.size(), kToldLines);
  for (std::size_t i = first; i < story_.size(); ++i) text += story_[i] + "\n";
  return text;
}

void SimulatedJob::say(const std::string& line) {
  story_.push_back(std::to_string(seconds_of(time_.now())) + " s: " + line);
}

void SimulatedJob::violated(const std::string& what) {
  if (!violation_.empty()) return;
  violation_ = what;
  say(what);
}

Duration SimulatedJob::random_time(Duration least, Duration most) {
  return Duration(std::uniform_int_distribution<std::int64_t>(least.count(), most.count())(random_));
}

// --- launchers and the network between them ---------------------------------------------------------------

void SimulatedJob::start(int place) {
  const std::uint64_t life = ++lives_;
  say("place " + std::to_string(place) + " starts, life " + std::to_string(life));
  launchers_[place] = std::make_unique<Launcher>(*this, place, life);
  launchers_[place]->begin();
}

Launcher* SimulatedJob::find(int place, std::uint64_t life) {
  const auto found = launchers_.find(place);
  return found != launchers_.end() && found->second->life() == life ? found->second.get() : nullptr;
}

void SimulatedJob::at_launcher(TimePoint when, int place, std::optional<std::uint64_t> life,
                               const std::function<void(Launcher*)>& happens) {
  time_.at(when, [this, place, life, happens] {
    const auto found = launchers_.find(place);
    Launcher* const launcher = found == launchers_.end() ? nullptr : found->second.get();
    if (launcher == nullptr || (life && launcher->life() != *life)) return happens(nullptr);
    if (time_.now() < launcher->frozen_until())
      return at_launcher(launcher->frozen_until(), place, life, happens);
    happens(launcher);
  });
}

void SimulatedJob::connect(Launcher& client, int server, const std::function<void(ConnectionPtr)>& reached) {
  const int place = client.place();
  const std::uint64_t life = client.life();
  const auto answered = std::make_shared<bool>(false);
  const auto answer = [this, place, life, answered, reached](const ConnectionPtr& connection) {
    return [this, life, answered, reached, connection](Launcher* self) {
      const bool late = std::exchange(*answered, true);
      if (self != nullptr && !late) return reached(connection);
      if (connection) close_up(connection, false);
    };
  };
  at_launcher(time_.now() + kOneAttempt, place, life, answer(nullptr));
  at_launcher(network_.arrival(place, server), server, std::nullopt,
              [this, place, server, life, answer](Launcher* host) {
                ConnectionPtr connection;
                if (host != nullptr) {
                  connection = std::make_shared<Connection>();
                  connection->client = place;
                  connection->client_life = life;
                  connection->server = server;
                  connection->server_life = host->life();
                  connection->id = ++connections_;
                  host->accept(connection);
                }
                const TimePoint back = network_.arrival(server, place);
                if (connection) connection->last_down = back;
                at_launcher(back, place, life, answer(connection));
              });
}

void SimulatedJob::ask(Launcher& asker, const Search& search,
                       const std::function<void(const std::vector<VoteAnswer>&)>& answered) {
  struct Ballot {
    std::vector<VoteAnswer> answers;
    std::size_t silent = 0, granted = 0;
    bool over = false;
  };
  const auto ballot = std::make_shared<Ballot>();
  ballot->silent = search.others.size();
  const int place = asker.place();
  const std::uint64_t life = asker.life();
  const auto end = [ballot, answered](Launcher* self) {
    if (self != nullptr && !std::exchange(ballot->over, true)) answered(ballot->answers);
  };
  at_launcher(time_.now() + kAsk, place, life, end);
  for (const Endpoint& at : search.others) {
    const int other = at.port - 1;
    at_launcher(network_.arrival(place, other), other, std::nullopt,
                [=, this, votes = search.votes, request = *search.request](Launcher* host) {
                  std::optional<VoteAnswer> answer;
                  if (host != nullptr) answer = decode_vote_answer(host->answer(kVoteKey, encode(request)));
                  at_launcher(network_.arrival(other, place), place, life, [=](Launcher* self) {
                    --ballot->silent;
                    if (answer) ballot->answers.push_back(*answer);
                    ballot->granted += answer && answer->granted ? 1 : 0;
                    const bool leader = answer && answer->leads > request.known_term;
                    if (ballot->silent == 0 || leader || (votes > 0 && ballot->granted >= votes)) end(self);
                  });
                });
  }
}

void SimulatedJob::send_up(const ConnectionPtr& connection, std::vector<std::string> messages) {
  connection->last_up =
      std::max(connection->last_up, network_.arrival(connection->client, connection->server));
  at_launcher(connection->last_up, connection->server, connection->server_life,
              [connection, messages = std::move(messages)](Launcher* server) {
                if (server != nullptr) server->serve(connection, messages);
              });
}

void SimulatedJob::send_down(const ConnectionPtr& connection, std::string message) {
  connection->last_down =
      std::max(connection->last_down, network_.arrival(connection->server, connection->client));
  at_launcher(connection->last_down, connection->client, connection->client_life,
              [connection, message = std::move(message)](Launcher* client) {
                if (client != nullptr && connection->client_open) client->receive(connection, message);
              });
}

void SimulatedJob::close_up(const ConnectionPtr& connection, bool silently) {
  if (!std::exchange(connection->client_open, false)) return;
  const TimePoint known =
      std::max(connection->last_up, network_.arrival(connection->client, connection->server));
  at_launcher(silently ? known + kSilence : known, connection->server, connection->server_life,
              [connection](Launcher* server) {
                if (server != nullptr) server->client_left(connection);
              });
}

void SimulatedJob::close_down(const ConnectionPtr& connection, bool silently) {
  if (!std::exchange(connection->server_open, false)) return;
  const TimePoint known =
      std::max(connection->last_down, network_.arrival(connection->server, connection->client));
  at_launcher(silently ? known + kSilence : known, connection->client, connection->client_life,
              [connection](Launcher* client) {
                if (client != nullptr && std::exchange(connection->client_open, false))
                  client->server_left(connection);
              });
}

// --- what befalls them ------------------------------------------------------------------------------------

// It is started again, as by its supervisor. Its memory is kept: it may be in the middle of a call.
void SimulatedJob::gone(int place, bool silently) {
  const auto found = launchers_.find(place);
  if (found == launchers_.end()) return;
  say("place " + std::to_string(place) + " is gone" + (silently ? " with its machine" : ""));
  found->second->end(silently);
  ended_.push_back(std::move(found->second));
  launchers_.erase(found);
  time_.after(random_time(milliseconds(200), seconds(10)), [this, place] {
    if (!launchers_.contains(place)) start(place);
  });
}

// Half of the time the leader.
Launcher* SimulatedJob::some_launcher() {
  std::vector<Launcher*> all, leaders;
  for (const auto& [place, launcher] : launchers_) {
    all.push_back(launcher.get());
    if (launcher->leads()) leaders.push_back(launcher.get());
  }
  const auto& some = leaders.empty() || chance(50) ? all : leaders;
  return some.empty() ? nullptr : some[random_() % some.size()];
}

void SimulatedJob::fault() {
  if (!faults_) return;
  time_.after(random_time(Duration::zero(), 2 * settings_.between_faults), [this] { fault(); });
  Launcher* const victim = some_launcher();
  if (victim == nullptr) return;
  const TimePoint until = time_.now() + random_time(milliseconds(100), 2 * settings_.lease);
  const std::string name = "place " + std::to_string(victim->place());
  const auto kind = random_() % 6;
  if (kind < 2) {
    gone(victim->place(), kind == 0);
  } else if (kind == 2) {
    say(name + " stands still until " + std::to_string(seconds_of(until)));
    victim->freeze(until);
  } else if (kind == 3) {
    say(name + " resets its connections");
    victim->reset_all_connections();
  } else {
    // Of all others, or of one; sometimes in one direction only.
    const int other = kind == 4 ? -1 : static_cast<int>(random_() % static_cast<unsigned>(places()));
    const bool up = !chance(25), down = !up || !chance(25);
    say(name + " is cut from " + (other < 0 ? "all" : std::to_string(other)) + " until " +
        std::to_string(seconds_of(until)));
    for (int place = 0; place < places(); ++place) {
      if (place == victim->place() || (other >= 0 && place != other)) continue;
      if (up) network_.cut(victim->place(), place, until);
      if (down) network_.cut(place, victim->place(), until);
    }
  }
}

// --- what must hold ---------------------------------------------------------------------------------------

void SimulatedJob::look_at(const Launcher& launcher) {
  const LeaderState& state = launcher.observer().state();
  if (!launcher.leadership().leads() || !violation_.empty()) return;
  const std::uint64_t term = launcher.leadership().term(), own = launcher.instance_id();
  if (!founder_of_.contains(own)) {
    founder_of_[own] = term == 1 ? own : founder_of_.at(last_followed_.at(own));
    if (term == 1) say("place " + std::to_string(launcher.place()) + " begins the job");
  }
  Succession& job = jobs_[founder_of_.at(own)];
  const auto [leader, first] = job.leaders.emplace(term, own);
  if (leader->second != own) violated("two leaders of term " + std::to_string(term));
  if (first) job.inherited[term] = term == 1 ? -1 : state.membership().snapshot().round;
  if (launcher.leadership().voters()->alone()) return;
  look_at_acknowledgements(launcher);
  look_at_what_was_decided(launcher, job);
}

// What a leader takes for heard by a majority has been.
void SimulatedJob::look_at_acknowledgements(const Launcher& leader) {
  const LeaderState& state = leader.observer().state();
  const Voters& voters = *leader.leadership().voters();
  for (const std::uint64_t events : {state.formed_at(), voters.changed_at(), state.next_event()}) {
    if (events == 0 || !voters.decided(events)) continue;
    const auto heard = std::count_if(voters.members().begin(), voters.members().end(), [&](const Voter& one) {
      const auto found = heard_.find({one.instance_id, leader.instance_id()});
      return found != heard_.end() && found->second >= events;
    });
    if (static_cast<std::size_t>(heard) < voters.members().size() / 2 + 1)
      violated("the leader of term " + std::to_string(leader.leadership().term()) +
               " believes that a majority of " + std::to_string(voters.members().size()) + " has heard " +
               std::to_string(events) + " of its news, which " + std::to_string(heard) + " have");
  }
}

// What a majority has heard of, every leader after it begins with.
void SimulatedJob::look_at_what_was_decided(const Launcher& leader, Succession& job) {
  const LeaderState& state = leader.observer().state();
  for (const LeaderState::Event& event : state.events()) {
    if (event.number + 1 == state.formed_at() && leader.leadership().decided(state.formed_at()))
      job.decided[leader.leadership().term()] = *round_of(event.event);
  }
  for (const auto& [before, round] : job.decided) {
    for (const auto& [after, known] : job.inherited) {
      if (before < after && known < round)
        violated("term " + std::to_string(after) + " began with round " + std::to_string(known) +
                 ", although a majority of term " + std::to_string(before) + " had heard of round " +
                 std::to_string(round));
    }
  }
}

void SimulatedJob::note_heard(std::uint64_t launcher, std::uint64_t leader, std::uint64_t events) {
  std::uint64_t& most = heard_[{launcher, leader}];
  most = std::max(most, events);
  last_followed_[launcher] = leader;
}

void SimulatedJob::note_start(const Launcher& launcher, std::uint64_t leader, const Start& start) {
  if (!violation_.empty()) return;
  std::string nodes;
  for (const RoundNode& node : start.nodes) nodes += std::to_string(node.node_rank) + " " + node.host + "; ";
  say("place " + std::to_string(launcher.place()) + " starts round " + std::to_string(start.round) +
      " as node " + std::to_string(start.self) + " of " + nodes);
  const std::uint64_t founder = founder_of_.at(leader);
  const auto [found, first] = jobs_[founder].started.emplace(start.round, nodes);
  if (found->second != nodes)
    violated("two rounds with the number " + std::to_string(start.round) + ": " + found->second + "and " +
             nodes);
  if (!jobs_[founder].takers.emplace(start.round, start.self).second)
    violated("two launchers are node " + std::to_string(start.self) + " of round " +
             std::to_string(start.round));
  for (const auto& [place, other] : launchers_) {
    const bool of_this_job = other->leader() != 0 && founder_of_.at(other->leader()) == founder;
    if (other->working() >= 0 && !of_this_job) ++beside_others_;
    if (of_this_job && other->working() >= 0 && other->working() != start.round)
      violated("place " + std::to_string(launcher.place()) + " starts round " + std::to_string(start.round) +
               " while place " + std::to_string(place) + " is at work in round " +
               std::to_string(other->working()));
  }
}

}  // namespace dtrain::simulation
