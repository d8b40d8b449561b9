// One loop over the acceptor, where strangers are served for a bounded time, and the workers' connections.
#include "parallel/server/parameter_server.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <map>

#include "collectives/p2p/transport.h"
#include "collectives/tcp/peer_address.h"
#include "parallel/server/message_link.h"
#include "parallel/server/purpose.h"
#include "parallel/server/table.h"
#include "runtime/base/check.h"
#include "runtime/base/error.h"

namespace dtrain {
namespace {

constexpr Duration kLongestTurn = std::chrono::milliseconds(100);
constexpr Duration kListenPatience = std::chrono::seconds(10);
// What was answered last goes out before the server does.
constexpr Duration kFarewell = std::chrono::seconds(2);

void check_rules(const ServerRules& rules) {
  if (rules.workers < 1)
    throw UsageError(fmt::format("parameter server: expected at least one worker, got {}", rules.workers));
  if (rules.max_staleness && *rules.max_staleness < 0)
    throw UsageError(
        fmt::format("parameter server: expected a bound of at least 0, got {}", *rules.max_staleness));
  if (rules.max_staleness && rules.update == ServerUpdate::sync)
    throw UsageError("parameter server: a bound on staleness is for asynchronous updates");
}

}  // namespace

struct ParameterServer::Impl {
  Impl(const ServerRules& server_rules, std::unique_ptr<Updater> updater, const ParameterServerOptions& given)
      : rules(server_rules),
        options(given),
        listening(options.host, options.name,
                  server::purpose_of(options.number, rules.workers, options.protection), options.token,
                  Deadline::after(kListenPatience)),
        address(listening.address.text()),
        table(rules, std::move(updater),
              [this](int worker, server::Message answer) { send(worker, std::move(answer)); }) {
    wake.reset(static_cast<int>(check(Sys{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)}, "eventfd")));
  }

  void send(int worker, server::Message answer) {
    const auto link = links.find(worker);
    if (link != links.end()) link->second.send(std::move(answer));
  }

  void turn() {
    std::vector<pollfd> polled{{wake.get(), POLLIN, 0}, {listening.acceptor.fd(), POLLIN, 0}};
    const std::size_t first_link = polled.size();
    std::vector<int> order;
    for (auto& [worker, link] : links) {
      polled.push_back({link.fd(), static_cast<short>(link.sends() ? POLLIN | POLLOUT : POLLIN), 0});
      order.push_back(worker);
    }
    ::poll(polled.data(), polled.size(), Deadline::after(kLongestTurn).poll_timeout_ms());
    for (std::size_t i = 0; i < order.size(); ++i) {
      if (polled[first_link + i].revents != 0) with_link(order[i], [&](auto& link) { read(order[i], link); });
    }
    for (net::AcceptedPeer& peer : listening.acceptor.serve())
      welcome(peer.identity.rank, std::move(peer.stream));
    // An answer to one may be an answer to all.
    for (const int worker : numbers()) with_link(worker, [](auto& link) { link.flush(); });
    for (const int worker : numbers()) {
      if (!table.has_left(worker) || links.at(worker).sends()) continue;
      links.erase(worker);
      table.lose(worker);
    }
  }

  std::vector<int> numbers() const {
    std::vector<int> all;
    for (const auto& [worker, link] : links) all.push_back(worker);
    return all;
  }

  template <class Body>
  void with_link(int worker, Body body) {
    const auto link = links.find(worker);
    if (link == links.end()) return;
    try {
      body(link->second);
    } catch (const p2p::LinkLost& lost) {
      say(LogLevel::info, fmt::format("worker {} is gone: {}", worker, lost.what()));
      links.erase(worker);
      table.lose(worker);
    }
  }

  void read(int worker, server::MessageLink& link) {
    while (auto request = link.take()) table.ask(worker, std::move(*request));
  }

  // One that comes again before its old connection was found dead takes its place.
  void welcome(int worker, net::SecureStream stream) {
    if (links.erase(worker) > 0) table.lose(worker);
    if (!table.join(worker)) return;
    links.emplace(worker, server::MessageLink(worker, std::move(stream), server::kLastOp));
    with_link(worker, [&](auto& here) { read(worker, here); });
  }

  void say(LogLevel level, const std::string& text) const {
    if (options.log != nullptr)
      options.log->write(level, fmt::format("parameter server {}: {}", options.number, text));
  }

  ServerRules rules;
  ParameterServerOptions options;
  tcp::ListeningRank listening;
  std::string address;
  server::Table table;
  std::map<int, server::MessageLink> links;
  UniqueFd wake;
  bool stopped = false;
};

ParameterServer::ParameterServer(const ServerRules& rules, std::unique_ptr<Updater> updater,
                                 const ParameterServerOptions& options)
    : impl_((check_rules(rules), std::make_unique<Impl>(rules, std::move(updater), options))) {}

ParameterServer::~ParameterServer() = default;

const std::string& ParameterServer::address() const noexcept { return impl_->address; }

void ParameterServer::run(Duration patience, const std::function<bool()>& given_up) {
  Impl& impl = *impl_;
  const Deadline first = Deadline::after(patience);
  while (!impl.table.deserted()) {
    impl.turn();
    std::uint64_t woken = 0;
    if (::read(impl.wake.get(), &woken, sizeof woken) > 0) return;
    if (impl.links.empty() && given_up && given_up()) return;
    if (impl.links.empty() && !impl.table.deserted() && first.expired())
      throw PeerError(fmt::format("parameter server {}: no worker has connected", impl.options.number),
                      PeerFailure{-1, "", "connect", 0, ""});
  }
  const Deadline farewell = Deadline::after(kFarewell);
  while (!impl.links.empty() && !farewell.expired()) impl.turn();
  if (const std::string rejected = impl.listening.acceptor.rejections(); !rejected.empty())
    impl.say(LogLevel::warning, rejected);
  if (impl.table.parted_well()) return;
  throw PeerError(fmt::format("parameter server {}: all workers are gone: {}", impl.options.number,
                              impl.table.over().empty() ? "some without a word" : impl.table.over()),
                  PeerFailure{-1, "", "serve", 0, ""});
}

void ParameterServer::stop() noexcept {
  const std::uint64_t one = 1;
  // Cannot fail: the counter is far from its limit.
  [[maybe_unused]] const auto written = ::write(impl_->wake.get(), &one, sizeof one);
}

const UpdateDelays& ParameterServer::delays() const noexcept { return impl_->table.delays(); }

}  // namespace dtrain
