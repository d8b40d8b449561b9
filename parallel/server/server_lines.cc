#include "parallel/server/server_lines.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>

#include "collectives/p2p/transport.h"
#include "collectives/tcp/connector.h"
#include "parallel/server/purpose.h"
#include "runtime/base/error.h"

namespace dtrain::server {
namespace {

constexpr Duration kLongestTurn = std::chrono::milliseconds(100);

}  // namespace

ServerLines::ServerLines(std::span<const std::string> cards, const WorkerSite& site,
                         const Deadline& deadline) {
  if (cards.empty())
    throw UsageError("parameter servers: expected the card of at least one server, got none");
  for (const std::string& card : cards) connect(size(), card, site, deadline);
}

ServerLines::~ServerLines() = default;

void ServerLines::connect(int server, const std::string& text, const WorkerSite& site,
                          const Deadline& deadline) {
  const tcp::PeerAddress card = tcp::PeerAddress::parse(text);
  const std::string name = fmt::format("parameter server {} on {} ({})", server, card.host, card.address);
  if (card.protection != site.protection)
    throw UsageError(
        fmt::format("{} protects its messages by '{}', worker {} by '{}'; set DTRAIN_TCP_PROTECTION to "
                    "the same everywhere",
                    name, name_of(card.protection), site.worker, name_of(site.protection)));
  const tcp::Purpose purpose = purpose_of(server, site.worker, site.protection);
  const std::string_view token = site.token ? site.token->bytes() : std::string_view();
  tcp::Connector connector(purpose, tcp::link_secret(token, purpose.group, card.nonce),
                           resolve(parse_endpoint(card.address, "a server's card"), deadline).front());
  while (true) {
    std::vector<pollfd> polled;
    connector.ask(polled);
    const Duration wait =
        std::min({connector.next(steady_clock().now()), deadline.remaining(), kLongestTurn});
    ::poll(polled.data(), polled.size(), Deadline::after(wait).poll_timeout_ms());
    if (auto connection = connector.serve(polled)) {
      lines_.push_back({name, card.host, MessageLink(server, std::move(*connection), true), 1, 1, {}, false});
      return;
    }
    if (deadline.expired())
      throw PeerError(fmt::format("{}: no connection: {}", name, connector.last_failure()),
                      PeerFailure{-1, card.host, "connect", 0, ""});
  }
}

void ServerLines::lose(const Line& line, const std::string& why) {
  throw PeerError(fmt::format("{}: {}", line.name, why), PeerFailure{-1, line.host, "request", 0, ""});
}

void ServerLines::pump(Line& line) {
  if (line.parted) return;
  try {
    line.link.flush();
    while (auto message = line.link.take()) line.answers.push_back(std::move(*message));
  } catch (const p2p::LinkLost& lost) {
    // What it said before it went explains more.
    if (line.answers.empty()) lose(line, lost.what());
  }
}

void ServerLines::post(int server, Message request) {
  Line& line = lines_.at(static_cast<std::size_t>(server));
  request.head.id = line.next_id++;
  line.link.send(std::move(request));
  pump(line);
}

Message ServerLines::answer(int server, const Deadline& deadline) {
  Line& asked = lines_.at(static_cast<std::size_t>(server));
  while (true) {
    for (Line& line : lines_) pump(line);
    if (!asked.answers.empty()) break;
    if (deadline.expired())
      lose(asked, "no answer in time; is it stopped, or does it wait for another worker?");
    std::vector<pollfd> polled;
    for (const Line& line : lines_) {
      if (line.parted) continue;
      polled.push_back(
          {line.link.fd(), static_cast<short>(line.link.sends() ? POLLIN | POLLOUT : POLLIN), 0});
    }
    ::poll(polled.data(), polled.size(),
           Deadline::after(std::min(deadline.remaining(), kLongestTurn)).poll_timeout_ms());
  }
  Message message = std::move(asked.answers.front());
  asked.answers.pop_front();
  if (message.head.id != asked.awaited++)
    lose(asked, "it answered another request than the one it was asked");
  if (message.status() == Status::over) lose(asked, message.text);
  if (message.status() == Status::refused) throw UsageError(fmt::format("{}: {}", asked.name, message.text));
  return message;
}

}  // namespace dtrain::server
