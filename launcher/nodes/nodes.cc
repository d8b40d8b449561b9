// Meets the other launchers, then turns their events into starts and ends of this node's workers.
#include "launcher/nodes/nodes.h"

#include <fmt/format.h>
#include <poll.h>

#include <cerrno>

#include "launcher/nodes/agreement.h"
#include "launcher/nodes/node_agent.h"
#include "launcher/nodes/node_agent_settings.h"
#include "launcher/nodes/reach.h"
#include "launcher/plan/examination.h"
#include "launcher/process/attempts.h"
#include "runtime/base/error.h"

namespace dtrain::launcher {
namespace {

using rendezvous::LeaderEvent;

// Between a signal and the end of a job that has not begun; the host of the rendezvous answers at once.
constexpr std::chrono::seconds kSignalPatience{1};
// The node agent's, when subreaper or guard have ended the workers.
constexpr std::chrono::milliseconds kLastWords{500};
// Longer than a node agent looks for another leader.
constexpr std::chrono::seconds kSuccession{12};
// Between two looks at the lease while no workers run.
constexpr std::chrono::seconds kLeaseLook{1};
constexpr int kUsage = static_cast<int>(ExitCode::usage);
constexpr int kPeer = static_cast<int>(ExitCode::peer);

class NodesRun final : private OtherNodes {
 public:
  NodesRun(const Job& job, Console& console) : job_(job), console_(console) {
    meet(node_agent_settings(job));
    attempts_.emplace(job, console);
  }

  int run() {
    while (!exit_code_) {
      wait_for_news();
      while (!exit_code_) {
        auto event = take_events();
        if (!event) break;
        std::visit([this](const auto& piece) { on(piece); }, *event);
      }
    }
    return *exit_code_;
  }

 private:
  // --- meeting ------------------------------------------------------------------------------------------

  void meet(const NodeAgentSettings& settings) {
    succession_ = settings.succession;
    const bool first = job_.placement.node_rank == 0;
    // Without node_ranks the machine that has the address is the first; of several launchers there, the
    // first that gets the port.
    const bool perhaps =
        !job_.placement.node_rank && rendezvous_is_here(job_.placement, Deadline::after(kResolveTimeout));
    if (first || perhaps) {
      NodeAgentSettings hosting = settings;
      hosting.hosts = true;
      hosting.offer.node_rank = 0;
      try {
        // Held from here on, so that a port that is taken is known before anybody waits. A machine that takes
        // a lost one's place may never need it.
        if (first && !succession_)
          master_ = ports_.settle(job_.placement.master_addr, job_.placement.master_port);
        agent_.emplace(hosting);
        return;
      } catch (const SystemError& error) {
        if (first || error.error_number() != EADDRINUSE)
          throw UsageError(
              fmt::format("the launchers' rendezvous (--rdzv-endpoint, else the port after "
                          "--master-port): {}",
                          error.what()));
      }
    }
    agent_.emplace(settings);
  }

  // --- between rounds -----------------------------------------------------------------------------------

  void wait_for_news() {
    pollfd waits[] = {{agent_->fd(), POLLIN, 0},
                      {attempts_->signals().fd(), POLLIN, 0},
                      {console_.out().wants_to_write() ? console_.out().fd() : -1, POLLOUT, 0},
                      {console_.err().wants_to_write() ? console_.err().fd() : -1, POLLOUT, 0},
                      {job_.control->fd(), POLLIN, 0}};
    const Deadline look = Deadline::after(kLeaseLook);
    const Deadline& deadline = give_up_ && give_up_->remaining() < look.remaining() ? *give_up_ : look;
    if (!pending_) ::poll(waits, std::size(waits), deadline.poll_timeout_ms());
    if (!pending_) look_at_the_lease();
    job_.control->serve();
    console_.flush();
    while (const auto signal = attempts_->signals().next()) take_signal(*signal);
    if (give_up_ && give_up_->expired()) exit_code_ = 128 + signal_;
  }

  void take_signal(int signal) {
    if (!attempts_->signals().stops(signal)) return;
    if (signal_ != 0) {
      if (steady_clock().now() - signal_at_ >= Supervisor::kEcho) exit_code_ = 128 + signal_;
      return;
    }
    signal_ = signal;
    signal_at_ = steady_clock().now();
    // Once workers have run, the other nodes' may need their time to end.
    if (round_ < 0) give_up_ = Deadline::after(kSignalPatience);
    console_.say("got " + signal_name(signal) + ": the job is ended");
    console_.hurry();
    job_.events->signal(signal);
    agent_->say(rendezvous::Signalled{signal});
  }

  std::optional<LeaderEvent> take_events() {
    if (!pending_) return agent_->take();
    return std::exchange(pending_, std::nullopt);
  }

  void on(const rendezvous::Waiting& event) {
    for (const std::string& line : event.lines) console_.say("waiting: " + line);
  }

  void on(const rendezvous::Forming& event) {
    if (event.self != 0) return agent_->say(rendezvous::Ready{event.round, 0});
    try {
      const std::string address = settle_master(event.round);
      agent_->say(rendezvous::Ready{event.round, master_->port, address});
    } catch (const Error& error) {
      const auto& node = event.nodes.front();
      agent_->say(rendezvous::Failed{
          event.round,
          Duration::zero(),
          {Failure::Kind::unusable, node.node_rank, node.host, -1, kUsage, false, {error.what()}}});
    }
  }

  // Where rank 0 will listen; returns the address. On a machine that took node 0's place that is its own, and
  // the port another one if that is taken there.
  std::string settle_master(int round) {
    const NodePlacement& place = job_.placement;
    const bool first =
        place.node_rank.value_or(0) == 0 || rendezvous_is_here(place, Deadline::after(kResolveTimeout));
    const std::string address =
        first ? place.master_addr : route_to_rendezvous(place, Deadline::after(kResolveTimeout)).address;
    if (master_) return address;
    try {
      master_ = ports_.settle(address, place.master_port);
    } catch (const UsageError&) {
      if (round == 0) throw;
      master_ = ports_.settle(address, 0);
    }
    return address;
  }

  void on(const rendezvous::Start& event) {
    event.examines ? console_.say("examining the nodes (--health-check)") : note_restart(event);
    round_ = event.round;
    const Plan plan = event.examines ? examination_of(event) : plan_of(event, job_.options, job_.program);
    Attempts::Start start;
    start.number = event.round;
    start.restart_count = event.restart_count;
    start.launch_time_ns = event.launch_time_ns;
    if (plan.program.uses_dtrain) start.token = token_of(event);
    MasterPort master;
    if (master_) master = std::move(*master_);
    master_.reset();
    master.port = event.master_port;
    running_ = true;
    try {
      const GroupResult result = attempts_->run(plan, start, std::move(master), this);
      tell_end(result);
      if (result.fenced && !succession_) hear_why_the_lease_ended();
    } catch (const Error& error) {
      tell_end(error);
    }
    running_ = false;
    print_failure();
  }

  void note_restart(const rendezvous::Start& event) {
    if (ran_) job_.events->restart(event.restart_count, job_.options.max_restarts);
    if (ran_ && restarts_ != event.restart_count)
      console_.say(fmt::format("restarting all workers: restart {} of {}", event.restart_count,
                               job_.options.max_restarts));
    restarts_ = event.restart_count;
    ran_ = true;
  }

  Plan examination_of(const rendezvous::Start& event) const {
    return plan_of(event, examination_options(job_.options), examination_program(job_.options));
  }

  Plan plan_of(const rendezvous::Start& event, const LaunchOptions& options, const Program& program) const {
    const auto& own = event.nodes[static_cast<std::size_t>(event.self)];
    NodeShare share;
    share.nnodes = static_cast<int>(event.nodes.size());
    share.group_rank = event.self;
    share.node_rank = own.node_rank;
    share.first_rank = own.first_rank;
    share.world_size = event.nodes.back().first_rank + event.nodes.back().nproc;
    NodePlacement placement = job_.placement;
    if (!event.master_addr.empty()) placement.master_addr = event.master_addr;
    return make_plan(options, placement, share, program, job_.environment, job_.hardware);
  }

  std::string token_of(const rendezvous::Start& event) const {
    if (job_.token) return job_.token->hex();
    return job_.options.insecure ? public_token(event.run_id, event.launch_time_ns) : "";
  }

  // Where there may be another leader, the node agent looks for it first.
  void look_at_the_lease() {
    if (!agent_->lease().over()) return over_since_.reset();
    if (!over_since_) over_since_ = steady_clock().now();
    if (!succession_ || steady_clock().now() - *over_since_ >= kSuccession) hear_why_the_lease_ended();
  }

  // The node agent says why, unless it stands still itself.
  void hear_why_the_lease_ended() {
    const Deadline patience = Deadline::after(kLastWords);
    while (!(pending_ && is_last(*pending_))) {
      pending_ = agent_->take();
      if (pending_) continue;
      pollfd wait{agent_->fd(), POLLIN, 0};
      if (!patience.expired()) {
        ::poll(&wait, 1, patience.poll_timeout_ms());
        continue;
      }
      pending_ = rendezvous::LeaseLost{
          "its lease has expired, and the node agent, its process for the network, does not respond"};
      agent_->put_down();
    }
  }

  void tell_end(const GroupResult& result) {
    const std::vector<std::string> troubles = Attempts::troubles(result);
    const int code = Attempts::exit_code(result);
    if (!troubles.empty() && code != 0) {
      Failure failure;
      failure.kind = result.stuck.empty() ? Failure::Kind::worker : Failure::Kind::unusable;
      failure.exit_code = code;
      for (const std::string& line : troubles)
        failure.lines.push_back(fmt::format("host {}: {}", job_.placement.host, line));
      agent_->say(rendezvous::Failed{round_, Duration::zero(), std::move(failure)});
    } else {
      for (const std::string& line : troubles) console_.complain(line);
    }
    agent_->say(rendezvous::Ended{round_, code, result.step});
  }

  void tell_end(const Error& error) {
    const int code = static_cast<int>(error.exit_code());
    agent_->say(rendezvous::Failed{round_,
                                   Duration::zero(),
                                   {Failure::Kind::unusable,
                                    0,
                                    "",
                                    -1,
                                    code,
                                    false,
                                    {"host " + job_.placement.host + ": " + error.what()}}});
    agent_->say(rendezvous::Ended{round_, code});
  }

  void on(const rendezvous::Stop& event) {
    // The last thing to be said of a start is why it ended, so not before its workers have.
    if (event.again && event.failure) failed_because_ = event.failure;
    if (!running_) print_failure();
    if (event.checkpoint_first)
      console_.say("a node has joined: the workers write a checkpoint and start again");
  }

  void on(const rendezvous::Over& event) {
    if (event.failure) print(*event.failure);
    exit_code_ = event.exit_code;
  }

  void on(const rendezvous::Refused& event) {
    console_.complain(event.why);
    exit_code_ = event.unreachable ? kPeer : kUsage;
  }

  void on(const rendezvous::Snapshot&) {}  // for the node agent alone

  void on(const rendezvous::KeptOut& event) { console_.complain(event.why); }

  void on(const rendezvous::LeaseLost& event) {
    console_.complain("this node has ended its workers, because it lost contact with the others: " +
                      event.why);
    exit_code_ = kPeer;
  }

  void print_failure() {
    if (failed_because_) print(*failed_because_);
    failed_because_.reset();
  }

  void print(const Failure& failure) const {
    job_.events->failure(failure);
    const bool calm = failure.kind == Failure::Kind::signal || failure.kind == Failure::Kind::requeue;
    for (const std::string& line : failure.lines) calm ? console_.say(line) : console_.complain(line);
  }

  // --- while workers run: the group's node agent
  // ----------------------------------------------------------------

  int fd() const override { return pending_ ? -1 : agent_->fd(); }

  Command take() override {
    while (!pending_) {
      auto event = agent_->take();
      if (!event) break;
      if (const auto* waiting = std::get_if<rendezvous::Waiting>(&*event)) {
        on(*waiting);
      } else if (const auto* kept = std::get_if<rendezvous::KeptOut>(&*event)) {
        on(*kept);
      } else if (const auto* stop = std::get_if<rendezvous::Stop>(&*event)) {
        on(*stop);
        return command_of(*stop);
      } else {
        // Over, Refused and LeaseLost end this node's part whatever its workers do; nothing comes after them.
        const bool kill = !std::holds_alternative<rendezvous::Start>(*event);
        pending_ = std::move(event);
        if (kill) return {Command::Kind::kill_all};
      }
    }
    return {};
  }

  Command command_of(const rendezvous::Stop& stop) const {
    if (stop.at_once) return {Command::Kind::kill_all};
    if (stop.signal) return {Command::Kind::signal, *stop.signal};
    // Only the built-in program knows what SIGUSR2 asks for.
    if (stop.checkpoint_first && job_.program.uses_dtrain) return {Command::Kind::signal, SIGUSR2};
    // Workers that wait for a node that is gone cannot do anything with a SIGTERM but wait on.
    const bool cut_off = stop.failure && stop.failure->kind == Failure::Kind::node_lost;
    return {Command::Kind::end, cut_off && job_.program.uses_dtrain ? 1 : 0};
  }

  void failed(const Failure& failure, Duration age) override {
    agent_->say(rendezvous::Failed{round_, age, failure});
  }

  void signalled(int signal) override { agent_->say(rendezvous::Signalled{signal}); }
  Lease* lease() override { return &agent_->lease(); }

  const Job& job_;
  Console& console_;
  bool succession_ = false;
  MasterPorts ports_{job_.program.uses_dtrain, job_.options.agent_store};
  std::optional<MasterPort> master_;  // settled and not yet used
  std::optional<NodeAgent> agent_;
  std::optional<Attempts> attempts_;
  std::optional<LeaderEvent> pending_;  // came while workers ran, and is for afterwards
  std::optional<int> exit_code_;
  std::optional<Deadline> give_up_;
  std::optional<TimePoint> over_since_;  // the lease is
  int signal_ = 0;                       // that came while no workers ran
  TimePoint signal_at_{};
  int round_ = -1, restarts_ = 0;
  std::optional<Failure> failed_because_;  // of a start that is followed by another
  bool running_ = false;
  bool ran_ = false;  // the program has been started
};

}  // namespace

int run_on_nodes(const Job& job, Console& console) { return NodesRun(job, console).run(); }

}  // namespace dtrain::launcher
