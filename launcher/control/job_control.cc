#include "launcher/control/job_control.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>

#include "cluster/net/endpoint.h"
#include "launcher/control/open_metrics.h"
#include "launcher/output/lines.h"
#include "runtime/base/error.h"

namespace dtrain::launcher {
namespace {

constexpr std::chrono::seconds kResolveTimeout{5};
constexpr std::string_view kUnix = "unix:";
constexpr std::string_view kHangPrefix = "hang: ";

HttpAnswer text_answer(int status, std::string text) {
  return {status, "text/plain; charset=utf-8", std::move(text) + "\n"};
}

bool is_ready(int fd) {
  pollfd wait{fd, POLLIN, 0};
  return ::poll(&wait, 1, 0) > 0;
}

}  // namespace

JobControl::JobControl(JobStatus about, const LaunchOptions& options) : about_(std::move(about)) {
  about_.pid = ::getpid();
  about_.max_restarts = options.max_restarts;
  about_.started_ns = std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count();
}

void JobControl::listen(const LaunchOptions& options, const Environment& environment, Console& console) {
  if (!options.metrics_listen.empty()) listen_for_metrics(options, console);
  open_socket(environment, console);
}

JobControl::~JobControl() {
  if (!metrics_path_.empty() && ::getpid() == about_.pid) ::unlink(metrics_path_.c_str());
}

// A job without it runs all the same.
void JobControl::open_socket(const Environment& environment, Console& console) {
  try {
    socket_.emplace(control_folders(environment));
    server_.listen(socket_->take(), Audience::owner);
  } catch (const Error& error) {
    socket_.reset();
    console.say(
        fmt::format("dtrain-launch status, stop, save and stacks will not find this job: {}", error.what()));
  }
}

void JobControl::listen_for_metrics(const LaunchOptions& options, Console& console) {
  const std::string& where = options.metrics_listen;
  const Deadline deadline = Deadline::after(kResolveTimeout);
  try {
    if (where.starts_with(kUnix)) {
      const std::filesystem::path path = where.substr(kUnix.size());
      server_.listen(listen_on_path(path, 0600), Audience::everyone);
      metrics_path_ = path;
      return;
    }
    const Endpoint endpoint = parse_endpoint(where, "--metrics-listen");
    const SocketAddress address = resolve(endpoint, deadline).front();
    if (!address.is_loopback() && !options.metrics_remote)
      throw UsageError(
          fmt::format("expected an address that only this machine reaches, such as "
                      "127.0.0.1:{}, got {}: anyone who reaches it could read the metrics, "
                      "unencrypted; to have it so, add --metrics-remote",
                      endpoint.port, address.text()));
    Listener listener = listen_on(endpoint.host, endpoint.port, deadline);
    if (endpoint.port == 0)
      console.say(fmt::format("metrics are at http://{}/metrics", listener.address.text()));
    server_.listen(std::move(listener.fd), Audience::everyone);
  } catch (const Error& error) {
    const std::string_view message = error.what();
    throw UsageError(message.starts_with("--metrics-listen") ? std::string(message)
                                                             : fmt::format("--metrics-listen: {}", message));
  }
}

void JobControl::start(const Plan& plan, const JobEvents::Start& start) {
  about_.run_id = start.run_id;
  about_.round = start.round;
  about_.restarts = start.restart_count;
  about_.program = plan.program.argv;
  about_.node_rank = plan.share.node_rank;
  about_.nodes = plan.share.nnodes;
  about_.world_size = plan.share.world_size;
  about_.first_rank = plan.share.first_rank;
}

JobStatus JobControl::status() {
  JobStatus job = about_;
  job.running = steady_clock().now() - began_;
  if (workers_ != nullptr) {
    job.state = "running";
    workers_->describe(job);
  }
  return job;
}

void JobControl::serve() {
  for (const HttpServer::Asked& asked : server_.serve()) {
    const bool stacks = asked.audience == Audience::owner && asked.request.method == "POST" &&
                        asked.request.path == "/stacks" && workers_ != nullptr;
    try {
      if (stacks)
        ask_for_stacks(asked.id);
      else
        server_.answer(asked.id, answer(asked.request, asked.audience));
    } catch (const std::exception& error) {
      server_.answer(asked.id, text_answer(500, error.what()));  // no reason to end a job
    }
  }
  if (stacks_ && is_ready(stacks_->fd())) give_stacks();
}

HttpAnswer JobControl::answer(const HttpRequest& request, Audience audience) {
  const bool reads = request.method == "GET" || request.method == "HEAD";
  const bool is_metrics = request.path == "/metrics", is_status = request.path == "/status";
  const bool commands = request.path == "/stop" || request.path == "/save" || request.path == "/stacks";
  if (!is_metrics && (audience != Audience::owner || (!is_status && !commands)))
    return text_answer(404, "expected /metrics, got " + escape_controls(request.path));
  if (commands ? request.method != "POST" : !reads)
    return text_answer(405, fmt::format("{}: expected {}, got {}", request.path, commands ? "POST" : "GET",
                                        escape_controls(request.method)));
  if (is_metrics) return {200, std::string(kOpenMetricsType), open_metrics(status())};
  if (is_status) return {200, "application/json", status_json(status())};
  return obey(request.path);
}

HttpAnswer JobControl::obey(const std::string& path) {
  if (path == "/stop") {
    // As if it had come from outside: with many nodes the others hear of it too.
    ::kill(::getpid(), SIGTERM);
    return text_answer(200, "the job has been asked to end (SIGTERM); a second stop kills its workers");
  }
  if (workers_ == nullptr)
    return text_answer(409, "no workers run now: the job waits for nodes, or is about to start them again");
  return text_answer(200, workers_->ask_for_checkpoint());
}

void JobControl::ask_for_stacks(HttpServer::Id id) {
  stacks_asked_.push_back(id);
  if (stacks_) return;  // a report is being made, which is as good
  stacks_.emplace(workers_->question_about_all());
  server_.watch(stacks_->fd());
}

void JobControl::give_stacks() {
  std::string text;
  for (const std::string& line : stacks_->take()) {
    const std::size_t prefix = line.starts_with(kHangPrefix) ? kHangPrefix.size() : 0;
    text += escape_controls(line.substr(prefix)) + "\n";
  }
  for (const HttpServer::Id id : std::exchange(stacks_asked_, {}))
    server_.answer(id, {200, "text/plain; charset=utf-8", text});
  server_.unwatch(stacks_->fd());
  stacks_.reset();
}

}  // namespace dtrain::launcher
