// What StoreServer does with a message, without the socket; what Crowd does with an event.
#include "tests/bench/rendezvous/without_sockets.h"

#include <unistd.h>

#include <memory>
#include <utility>
#include <vector>

#include "cluster/rendezvous/leader/server_observer.h"
#include "cluster/rendezvous/messages.h"
#include "cluster/rendezvous/session.h"
#include "cluster/store/store_table.h"
#include "tests/bench/rendezvous/crowd.h"
#include "tests/bench/rendezvous/measure.h"
#include "tests/bench/rendezvous/server_process.h"

namespace dtrain::bench {
namespace {

constexpr int kATurn = 256;  // launchers served between two looks at the time, as events of a server's turn
constexpr std::uint64_t kNobody = 0, kFirst = 1;  // as clients
constexpr Duration kTickEvery = std::chrono::milliseconds(100);

double seconds_since(TimePoint start) {
  return std::chrono::duration<double>(steady_clock().now() - start).count();
}

class InProcessJob final : public StoreControl {
 public:
  explicit InProcessJob(int launchers)
      : launchers_(launchers),
        options_(server_options(launchers, std::nullopt)),
        observer_(options_, {"127.0.0.1", 1}, false),
        table_({},
               [this](std::uint64_t client, const wire::Response& response) { answer(client, response); }) {
    sessions_.reserve(static_cast<std::size_t>(launchers));
  }

  void join_all() {
    while (joined() < launchers_ && trouble_.empty()) {
      const auto node_rank = static_cast<int>(sessions_.size());
      rendezvous::SessionTimes times;
      times.lease = options_.rules.lease;
      sessions_.push_back(
          std::make_unique<rendezvous::Session>(offer_of(node_rank), times, steady_clock().now()));
      changed_.push_back(static_cast<std::size_t>(node_rank));
      if (changed_.size() == kATurn) turn();
    }
  }
  void run_until(const int& count, const Deadline& deadline) {
    while (count < launchers_ && trouble_.empty()) {
      turn();
      if (deadline.expired()) trouble_ = "too slow";
    }
  }
  void fail_one() {
    rendezvous::Failed failed;
    failed.failure.exit_code = 7;
    sessions_.front()->say(failed, steady_clock().now());
    changed_.push_back(0);
  }

  const int& started() const noexcept { return started_; }
  const int& stopped() const noexcept { return stopped_; }
  const std::string& trouble() const noexcept { return trouble_; }

 private:
  int joined() const noexcept { return static_cast<int>(sessions_.size()); }

  void turn() {
    for (std::size_t i = 0; i < changed_.size(); ++i) serve(changed_[i]);  // serving one changes others
    changed_.clear();
    const TimePoint now = steady_clock().now();
    observer_.on_turn(*this, now);
    if (now < next_tick_) return;
    next_tick_ = now + kTickEvery;
    for (std::size_t i = 0; i < sessions_.size(); ++i) {
      sessions_[i]->tick(now);
      changed_.push_back(i);
    }
  }

  void serve(std::size_t launcher) {
    rendezvous::Session& session = *sessions_[launcher];
    while (const auto event = session.take()) react(session, *event);
    const std::vector<std::string> messages = std::exchange(session.out(), {});
    for (const std::string& message : messages) {
      const auto request = wire::decode_request(message);
      request ? apply(launcher + kFirst, *request) : fail("a malformed request");
    }
  }

  void react(rendezvous::Session& session, const std::string& event) {
    const TimePoint now = steady_clock().now();
    if (const auto round = rendezvous::round_of(event)) {
      if (rendezvous::is_forming(event)) {
        session.say(rendezvous::Ready{*round, 4711}, now);
      } else if (rendezvous::is_start(event)) {
        ++started_;
      } else {
        ++stopped_;
        session.say(rendezvous::Ended{*round, 143}, now);
      }
    } else if (session.ended() && !rendezvous::is_over(event)) {
      fail("a launcher was refused, or lost its lease");
    }
  }

  void apply(std::uint64_t client, const wire::Request& request) {
    if (request.op != wire::Op::set || !request.keys.front().starts_with(observer_.prefix()))
      return table_.apply(client, request);
    answer(client, {request.id, wire::Status::ok,
                    observer_.on_set(*this, client, request.keys.front(), request.value)});
  }

  void answer(std::uint64_t client, const wire::Response& response) {
    if (client == kNobody) return;
    sessions_[client - kFirst]->receive(wire::encode(response), steady_clock().now());
    changed_.push_back(client - kFirst);
  }

  void publish(const std::string& key, std::string value) override {
    table_.apply(kNobody, {.op = wire::Op::set, .keys = {key}, .value = std::move(value), .expected = {}});
  }
  void forget(const std::string& key) override {
    table_.apply(kNobody, {.op = wire::Op::remove, .keys = {key}, .value = {}, .expected = {}});
  }
  void expel(std::uint64_t) override { fail("a launcher was sent away"); }
  void fail(const std::string& why) {
    if (trouble_.empty()) trouble_ = why;
  }

  const int launchers_;
  const rendezvous::ServerOptions options_;
  rendezvous::ServerObserver observer_;
  StoreTable table_;
  std::vector<std::unique_ptr<rendezvous::Session>> sessions_;
  std::vector<std::size_t> changed_;
  TimePoint next_tick_{};
  int started_ = 0, stopped_ = 0;
  std::string trouble_;
};

}  // namespace

WorkResult measure_without_sockets(int launchers) {
  const Deadline deadline = Deadline::after(std::chrono::seconds(120));
  InProcessJob job(launchers);
  WorkResult result;
  const TimePoint start = steady_clock().now();
  job.join_all();
  job.run_until(job.started(), deadline);
  result.joined_s = seconds_since(start);
  const TimePoint failed = steady_clock().now();
  job.fail_one();
  job.run_until(job.stopped(), deadline);
  result.failure_s = seconds_since(failed);
  result.mib = status_mib(::getpid(), "VmHWM");
  result.trouble = job.trouble();
  return result;
}

}  // namespace dtrain::bench
