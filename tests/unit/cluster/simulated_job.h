// A job's launchers in virtual time: each has the session, the leadership and the leader that a real one has,
// driven as Member and StoreServer drive them, over a network that delays, cuts and forgets. What must hold
// whatever happens is looked at after every event.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "cluster/quorum/leadership.h"
#include "cluster/rendezvous/leader/server_observer.h"
#include "cluster/rendezvous/session.h"
#include "cluster/store/store_table.h"
#include "tests/unit/cluster/simulated_network.h"

namespace dtrain::simulation {

struct Settings {
  int nodes = 3, spares = 1;
  Duration lease = std::chrono::seconds(4), lost_after = std::chrono::seconds(6);
  Duration join_timeout = std::chrono::seconds(60);
  Duration slowest_message = std::chrono::milliseconds(60);
  Duration between_faults = std::chrono::seconds(4);  ///< on average
};

class SimulatedJob;

/// A connection's two ends; each is closed by its holder.
struct Connection {
  int client = 0, server = 0;  ///< places
  std::uint64_t client_life = 0, server_life = 0, id = 0;
  bool client_open = true, server_open = true;
  TimePoint last_up{}, last_down{};  ///< messages of one direction do not overtake each other
};
using ConnectionPtr = std::shared_ptr<Connection>;

/// One launcher, from its start to its end.
class Launcher final : public StoreControl {
 public:
  Launcher(SimulatedJob& job, int place, std::uint64_t life);

  void begin();
  /// Its process ends; `silently`: so does its machine, and nobody is told.
  void end(bool silently);
  void freeze(TimePoint until) { frozen_until_ = until; }
  void reset_all_connections();

  bool leads() const { return observer_.state().open() && (leadership_.leads() || place_ == 0); }
  /// The round that its workers are at, whose lease has not run out; -1: none.
  int working() const;
  /// Who told it to; 0: nobody has.
  std::uint64_t leader() const { return leader_; }
  int place() const { return place_; }
  std::uint64_t life() const { return life_; }
  std::uint64_t instance_id() const { return life_ + 1000; }
  TimePoint frozen_until() const { return frozen_until_; }
  const rendezvous::ServerObserver& observer() const { return observer_; }
  const rendezvous::Leadership& leadership() const { return leadership_; }

  /// Where it stands, for people.
  std::string text() const;

  // Its store's server.
  void publish(const std::string& key, std::string value) override;
  void forget(const std::string& key) override;
  void expel(std::uint64_t client) override;
  void accept(const ConnectionPtr& connection) { clients_[connection->id] = connection; }
  void serve(const ConnectionPtr& connection, const std::vector<std::string>& messages);
  void client_left(const ConnectionPtr& connection);
  std::string answer(std::string_view key, const std::string& value);

  // Its member.
  void receive(const ConnectionPtr& connection, const std::string& message);
  void server_left(const ConnectionPtr& connection);

 private:
  using Reached = std::function<void(ConnectionPtr)>;  // nullptr: in vain

  void after_serving();
  void serve_turn();
  void respond(std::uint64_t client, const wire::Response& response);
  void announce();

  void turn();
  void wake_at(TimePoint when);
  void pause(Duration time);
  void flush();
  void deliver();
  void act(const rendezvous::LeaderEvent& event);
  void say_later(Duration slowest, std::function<void()> saying);
  void end_workers(int exit_code);
  void leave_server();
  void join_first();
  void reconnect();
  void go_elsewhere();
  void look_for_leader(rendezvous::Search search);
  void follow(int leader, const std::function<void()>& in_vain);

  SimulatedJob& job_;
  const int place_;
  const std::uint64_t life_;
  TimePoint frozen_until_{};

  rendezvous::Leadership leadership_;
  StoreTable table_;
  rendezvous::ServerObserver observer_;
  std::map<std::uint64_t, ConnectionPtr> clients_;
  std::vector<std::uint64_t> doomed_;
  std::uint64_t serve_turns_ = 0;

  std::optional<rendezvous::Session> session_;
  ConnectionPtr connection_;
  int server_ = 0;  // the place of the one that it follows
  bool busy_ = false, referred_in_vain_ = false;
  std::uint64_t wakes_ = 0;
  TimePoint granted_until_{};
  int at_work_ = -1;
  std::uint64_t leader_ = 0;
};

class SimulatedJob {
 public:
  SimulatedJob(unsigned seed, Settings settings);

  /// Faults for so long, then none; until all nodes work in one round or `patience` has passed.
  void run(Duration faults, Duration patience);
  /// What must not have happened and has; empty: nothing.
  const std::string& violation() const { return violation_; }
  /// All nodes work in one round, and nobody works beside them.
  bool complete() const;
  std::size_t rounds() const;
  std::size_t elections() const;
  /// How many have begun to work while a launcher of another job, begun at the same meeting point, was at
  /// work.
  std::size_t beside_others() const { return beside_others_; }
  std::string text() const;

 private:
  friend class Launcher;
  /// What one founder's leadership has led to.
  struct Succession {
    std::map<std::uint64_t, std::uint64_t> leaders;   // instance_ids, by term
    std::map<std::uint64_t, int> inherited, decided;  // rounds, by term
    std::map<int, std::string> started;               // node sets, by round
    std::set<std::pair<int, int>> takers;             // rounds, and the nodes in them that have begun
  };

  int places() const { return settings_.nodes + settings_.spares; }
  Launcher* find(int place, std::uint64_t life);
  /// As soon as that launcher, which may be another one by then, or stand still, does something.
  void at_launcher(TimePoint when, int place, std::optional<std::uint64_t> life,
                   const std::function<void(Launcher*)>& happens);
  void connect(Launcher& client, int server, const std::function<void(ConnectionPtr)>& reached);
  void ask(Launcher& asker, const rendezvous::Search& search,
           const std::function<void(const std::vector<rendezvous::VoteAnswer>&)>& answered);
  void send_up(const ConnectionPtr& connection, std::vector<std::string> messages);
  void send_down(const ConnectionPtr& connection, std::string message);
  /// One end has closed; the other one hears so with what was sent before, or, of a machine that is gone,
  /// when its own patience ends.
  void close_up(const ConnectionPtr& connection, bool silently);
  void close_down(const ConnectionPtr& connection, bool silently);

  void start(int place);
  void gone(int place, bool silently);
  void fault();
  Duration random_time(Duration least, Duration most);
  bool chance(int percent) { return static_cast<int>(random_() % 100) < percent; }
  Launcher* some_launcher();

  void look_at(const Launcher& launcher);
  void look_at_acknowledgements(const Launcher& leader);
  void look_at_what_was_decided(const Launcher& leader, Succession& job);
  void note_start(const Launcher& launcher, std::uint64_t leader, const rendezvous::Start& start);
  void note_heard(std::uint64_t launcher, std::uint64_t leader, std::uint64_t events);
  void violated(const std::string& what);
  void say(const std::string& line);

  const Settings settings_;
  std::mt19937 random_;
  Timeline time_;
  Network network_;
  std::map<int, std::unique_ptr<Launcher>> launchers_;
  std::vector<std::unique_ptr<Launcher>> ended_;  // events may still name them
  std::uint64_t lives_ = 0, connections_ = 0;
  bool faults_ = true;

  /// By the founder's instance_id: where all are lost who could have continued a job, another one begins.
  std::map<std::uint64_t, Succession> jobs_;
  std::map<std::uint64_t, std::uint64_t> founder_of_;                       // a leader's job
  std::map<std::uint64_t, std::uint64_t> last_followed_;                    // a launcher's leader
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::uint64_t> heard_;  // by a launcher, of a leader
  std::size_t beside_others_ = 0;
  std::string violation_;
  std::vector<std::string> story_;
};

}  // namespace dtrain::simulation
