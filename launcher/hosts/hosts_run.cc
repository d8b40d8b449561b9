// One loop over all hosts' pipes and this process's signals.
#include "launcher/hosts/hosts_run.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <sstream>
#include <vector>

#include "cluster/detect/detect.h"
#include "cluster/net/endpoint.h"
#include "launcher/hosts/remote_host.h"
#include "launcher/plan/program.h"
#include "launcher/process/signals.h"
#include "runtime/base/blocked_signals.h"
#include "runtime/base/error.h"

namespace dtrain::launcher {
namespace {

using std::chrono::seconds;
using State = RemoteHost::State;

constexpr seconds kGreeting{60};
// From the end of one launcher, by which the job is over, to that of the last one.
constexpr seconds kOthersEnd{30};
// The same where it failed before it had met the others, who would wait for it.
constexpr seconds kNobodyWaits{5};
constexpr seconds kSecondSignal{5};
constexpr seconds kResolve{5};
constexpr seconds kRest{2};  // for connections to close at the end
constexpr std::size_t kRemembered = 1000;
constexpr std::string_view kLaunchersOwn = "dtrain-launch: ";
constexpr int kUsage = static_cast<int>(ExitCode::usage);
constexpr int kPeer = static_cast<int>(ExitCode::peer);

std::string new_mark() {
  std::uint64_t number = 0;
  fill_random(&number, sizeof number);
  return fmt::format("dtrain-proxy-{:016x}", number);
}

std::string path_of(const std::string& program, const Environment& environment) {
  if (program.find('/') != std::string::npos) return program;
  if (const auto found = search_path(program, variable_or(environment, "PATH", "/usr/bin:/bin")))
    return *found;
  throw UsageError(
      fmt::format("--ssh: there is no program {} in PATH; install it (apt install openssh-client), or "
                  "name another with --ssh",
                  program));
}

class HostsRun {
 public:
  HostsRun(const HostsPlan& plan, const LaunchOptions& options, const std::optional<Token>& token,
           const Environment& environment, const std::string& own_folder, Console& console)
      : plan_(plan),
        options_(options),
        token_(token ? *token : make_token()),
        environment_(environment),
        launcher_(own_folder + "/dtrain-launch"),
        console_(console),
        hostname_(this_machine().hostname),
        signals_(options.stop_signals) {}

  int run() {
    start_all();
    while (!all_ended()) {
      wait();
      while (const auto signal = signals_.next()) take_signal(*signal);
      for (const auto& host : hosts_) look_after(*host);
      if (!begun_) meet();
      if (deadline_ && deadline_->expired()) close_all();
    }
    for (const auto& host : hosts_) {
      for (const bool to_err : {false, true}) console_.forget(host->speaker(to_err));
    }
    return exit_code();
  }

 private:
  void start_all() {
    const std::string ssh = path_of(plan_.ssh.front(), environment_);
    // Three pipes a host; the processes that lead there get the old limit back.
    rlimit files = signals_.inherited().open_files;
    files.rlim_cur = files.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &files);
    const AllSignalsBlocked blocked;  // for vfork, whose child shares our memory
    for (const HostEntry& entry : plan_.hosts) {
      hosts_.push_back(std::make_unique<RemoteHost>(
          entry, static_cast<int>(hosts_.size()),
          [this](RemoteHost& host, bool to_err, const TextLine& line) { take_line(host, to_err, line); }));
      const bool here = is_this_machine(entry.name, hostname_);
      SpawnRequest request;
      request.argv = command_for(plan_, entry, here, launcher_, mark_);
      request.path = here ? launcher_ : ssh;
      request.environment = merged_environment(environment_, {"DTRAIN_TOKEN"}, {});
      hosts_.back()->start(std::move(request), signals_.inherited());
    }
  }

  bool all_ended() const {
    return std::all_of(hosts_.begin(), hosts_.end(), [](const auto& host) { return host->ended(); });
  }

  // --- the loop -----------------------------------------------------------------------------------------

  void wait() {
    // Who prints faster than our reader reads is held back.
    const bool full = console_.out().full() || console_.err().full();
    std::vector<pollfd> waits{{signals_.fd(), POLLIN, 0},
                              {console_.out().wants_to_write() ? console_.out().fd() : -1, POLLOUT, 0},
                              {console_.err().wants_to_write() ? console_.err().fd() : -1, POLLOUT, 0}};
    Deadline deadline = deadline_ ? *deadline_ : Deadline::never();
    if (!begun_ && greeting_.remaining() < deadline.remaining()) deadline = greeting_;
    for (const auto& host : hosts_) {
      waits.push_back({full ? -1 : host->out_fd(), POLLIN, 0});
      waits.push_back({full ? -1 : host->err_fd(), POLLIN, 0});
      waits.push_back({host->in_fd(), POLLOUT, 0});
      if (const auto due = host->due()) {
        const Deadline until = Deadline::after(*due - steady_clock().now());
        if (until.remaining() < deadline.remaining()) deadline = until;
      }
    }
    ::poll(waits.data(), waits.size(), deadline.poll_timeout_ms());
    for (std::size_t i = 0; i < hosts_.size(); ++i) {
      const std::size_t at = 3 + 3 * i;
      if (waits[at].revents != 0) hosts_[i]->read(false);
      if (waits[at + 1].revents != 0) hosts_[i]->read(true);
      if (waits[at + 2].revents != 0) hosts_[i]->flush();
    }
    console_.flush();
    if (!closing_ && console_.out().broken()) close_all();  // as at the end of any pipeline
  }

  void look_after(RemoteHost& host) {
    host.keep_time();
    if (host.ended()) return;
    const State before = host.state();
    host.reap();
    if (!host.ended()) return;
    host.hang_up();
    if (before == State::running) part_with(host);
    if (before == State::running || closing_) return;
    const std::string why = host.failure.value_or(host.how_it_ended());
    failed_.push_back(fmt::format("{} ({})", host.name(), why));
    console_.complain(fmt::format("host {} cannot be used: {}", host.name(), why));
  }

  // What the end of one launcher means for the others.
  void part_with(const RemoteHost& host) {
    if (host.failure) console_.complain(fmt::format("host {}: {}", host.name(), *host.failure));
    if (host.killed_by)
      console_.complain(fmt::format("host {}: its launcher was killed by {}, and with it that node is lost",
                                    host.name(), signal_name(*host.killed_by)));
    if (!host.exit_code && !host.killed_by && !host.failure && !closing_)
      console_.complain(fmt::format("the connection to host {} is lost ({}), and with it that node",
                                    host.name(), host.how_it_ended()));
    const int code = host.failure ? kUsage : host.exit_code.value_or(kPeer);
    // The others know by themselves of a node that they have lost.
    if (code == kPeer) return;
    settled_code_ = settled_code_ && *settled_code_ != kUsage ? settled_code_ : code;
    const auto running = std::count_if(hosts_.begin(), hosts_.end(),
                                       [](const auto& each) { return each->state() == State::running; });
    if (code == kUsage && running >= plan_.nodes.least) return;
    const auto patience =
        code == kUsage ? kNobodyWaits : kOthersEnd + seconds(options_.saving_grace.count() / 1000);
    if (!deadline_) deadline_ = Deadline::after(patience);
  }

  void close_all() {
    closing_ = true;
    for (const auto& host : hosts_) {
      if (host->state() == State::connecting || hung_up_)
        host->kill();
      else
        host->hang_up();
    }
    // The proxies end their launchers; a connection that does not close is cut.
    deadline_ = hung_up_ ? std::optional<Deadline>() : Deadline::after(kRest);
    hung_up_ = true;
  }

  void take_signal(int signal) {
    const bool stops = signals_.stops(signal);
    if (stops) console_.hurry();
    if (!stops && signal != SIGUSR1 && signal != SIGUSR2) return;
    if (stops && !begun_) {
      signal_ = signal;
      return close_all();
    }
    // One launcher tells the others.
    const auto first = std::find_if(hosts_.begin(), hosts_.end(),
                                    [](const auto& host) { return host->state() == State::running; });
    if (first != hosts_.end()) (*first)->send(fmt::format("signal {}", signal));
    if (!stops) return;
    if (signal_ != 0) deadline_ = Deadline::after(kSecondSignal);
    signal_ = signal;
  }

  // --- meeting ------------------------------------------------------------------------------------------

  void meet() {
    if (closing_) return;
    const bool late = greeting_.expired();
    for (const auto& host : hosts_) {
      if (host->state() == State::connecting && !late) return;
      if (host->state() != State::connecting) continue;
      host->failure = fmt::format("no answer in {} s", kGreeting.count());
      host->kill();
    }
    if (late) return void(greeting_ = Deadline::after(kGreeting));  // until those have been reaped
    std::vector<PresentHost> present;
    for (const auto& host : hosts_) {
      if (host->state() == State::greeted)
        present.push_back({host->entry(), is_this_machine(host->name(), hostname_), *host->greeting});
    }
    const int count = static_cast<int>(present.size());
    if (count < plan_.nodes.least) {
      console_.complain(fmt::format("only {} of {} hosts can be used, and the job needs {}: {}", count,
                                    hosts_.size(), plan_.nodes.least, fmt::join(failed_, ", ")));
      settled_code_ = kPeer;
      return close_all();
    }
    begin(present);
  }

  void begin(const std::vector<PresentHost>& present) {
    begun_ = true;
    const std::string master = address(present);
    if (master.empty() && !plan_.knows_master && present.size() > 1) {
      console_.complain(
          fmt::format("the address at which the other hosts reach {} is not known; give it with "
                      "--master-addr",
                      present.front().entry.name));
      settled_code_ = kUsage;
      return close_all();
    }
    int node_rank = 0;
    for (const auto& host : hosts_) {
      if (host->state() != State::greeted) continue;
      LaunchRequest request =
          request_for(plan_, host->entry(), node_rank++, static_cast<int>(present.size()), master);
      request.environment["DTRAIN_TOKEN"] = token_.hex();
      host->set_state(State::running);
      host->send(encode(request));
    }
  }

  // Where ssh shows none, names have to do.
  std::string address(const std::vector<PresentHost>& present) const {
    std::string known = address_of_first(plan_, present);
    if (!known.empty() || plan_.knows_master || present.size() < 2) return known;
    const auto bare = [](const std::string& name) { return name.substr(name.find('@') + 1); };
    if (!present.front().here) return bare(present.front().entry.name);
    for (const PresentHost& other : present) {
      if (!other.here) return address_towards(bare(other.entry.name), Deadline::after(kResolve));
    }
    return {};
  }

  // --- what hosts say -----------------------------------------------------------------------------------

  void take_line(RemoteHost& host, bool to_err, const TextLine& line) {
    if (const auto own = to_err ? parse_proxy_line(mark_, line.text) : std::nullopt) {
      if (!own->before.empty()) show(host, true, {own->before, line.continued, false, false});
      if (own->greeting && host.state() == State::connecting) {
        host.greeting = own->greeting;
        host.set_state(State::greeted);
      }
      if (own->exit_code) host.exit_code = own->exit_code;
      if (own->killed_by) host.killed_by = own->killed_by;
      if (own->failure) host.failure = own->failure;
      return;
    }
    show(host, to_err, line);
  }

  void show(RemoteHost& host, bool to_err, const TextLine& line) {
    const std::string text = plan_.passthrough ? std::string(line.text) : escape_controls(line.text);
    // ssh's own words, and those of a login shell, come before the greeting.
    const bool names_host = to_err && !line.continued && (!host.greeting || text.starts_with(kLaunchersOwn));
    if (!names_host) {
      if (line.unfinished)
        console_.open(host.speaker(to_err), text, line.continued);
      else
        console_.line(host.speaker(to_err), text, line.continued);
    } else if (is_news(host, text)) {
      console_.line(host.speaker(true), host.name() + ": " + text);
    }
  }

  // All launchers of a job print why it ended; one such line is enough.
  bool is_news(const RemoteHost& host, const std::string& text) {
    if (!text.starts_with(kLaunchersOwn)) return true;
    if (said_by_.size() >= kRemembered) said_by_.clear();
    return said_by_.emplace(text, host.place()).first->second == host.place();
  }

  int exit_code() const {
    if (settled_code_) return *settled_code_;
    if (signal_ != 0) return 128 + signal_;
    return kPeer;
  }

  const HostsPlan& plan_;
  const LaunchOptions& options_;
  const Token token_;
  const Environment& environment_;
  const std::string launcher_;
  Console& console_;
  const std::string hostname_;
  Signals signals_;
  const std::string mark_ = new_mark();
  std::vector<std::unique_ptr<RemoteHost>> hosts_;
  std::map<std::string, int> said_by_;
  std::vector<std::string> failed_;  // hosts that cannot be used, and why
  Deadline greeting_ = Deadline::after(kGreeting);
  std::optional<Deadline> deadline_;  // for the end of all
  std::optional<int> settled_code_;
  bool begun_ = false, closing_ = false, hung_up_ = false;
  int signal_ = 0;
};

}  // namespace

int run_on_hosts(const HostsPlan& plan, const LaunchOptions& options, const std::optional<Token>& token,
                 const Environment& environment, const std::string& own_folder, Console& console) {
  return HostsRun(plan, options, token, environment, own_folder, console).run();
}

}  // namespace dtrain::launcher
