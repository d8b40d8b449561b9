#include "parallel/server/server_channels.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>

#include "collectives/p2p/transport.h"
#include "collectives/tcp/peer_address.h"
#include "parallel/server/purpose.h"
#include "runtime/base/error.h"

namespace dtrain::server {
namespace {

constexpr Duration kLongestTurn = std::chrono::milliseconds(100);

}  // namespace

ServerChannels::ServerChannels(std::span<const std::string> addresses, const KeyValueStoreOptions& options,
                               const Deadline& deadline) {
  if (addresses.empty())
    throw UsageError("parameter servers: expected the address of at least one server, got none");
  for (const std::string& address : addresses) connect(size(), address, options, deadline);
}

ServerChannels::~ServerChannels() = default;

void ServerChannels::connect(int server, const std::string& text, const KeyValueStoreOptions& options,
                             const Deadline& deadline) {
  const tcp::PeerAddress address = tcp::PeerAddress::parse(text);
  const std::string name =
      fmt::format("parameter server {} on {} ({})", server, address.host, address.address);
  if (address.protection != options.protection)
    throw UsageError(
        fmt::format("{} protects its messages by '{}', worker {} by '{}'; set DTRAIN_TCP_PROTECTION to "
                    "the same everywhere",
                    name, name_of(address.protection), options.worker, name_of(options.protection)));
  net::Connector connector = tcp::connector_to(
      address, options.worker, purpose_of(server, 0, options.protection), options.token, deadline);
  auto stream = connector.run(deadline);
  if (!stream)
    throw PeerError(fmt::format("{}: no connection: {}", name, connector.why()),
                    PeerFailure{-1, address.host, "connect", 0, ""});
  channels_.push_back(
      {name, address.host, MessageLink(server, std::move(*stream), kLastStatus), 1, 1, {}, false});
}

void ServerChannels::lose(const Channel& channel, const std::string& why) {
  throw PeerError(fmt::format("{}: {}", channel.name, why), PeerFailure{-1, channel.host, "request", 0, ""});
}

void ServerChannels::pump(Channel& channel) {
  if (channel.parted) return;
  try {
    channel.link.flush();
    while (auto message = channel.link.take()) channel.answers.push_back(std::move(*message));
  } catch (const p2p::LinkLost& lost) {
    // What it said before it went explains more.
    if (channel.answers.empty()) lose(channel, lost.what());
  }
}

void ServerChannels::post(int server, Message request) {
  Channel& channel = channels_.at(static_cast<std::size_t>(server));
  request.head.id = channel.next_id++;
  channel.link.send(std::move(request));
  pump(channel);
}

Message ServerChannels::answer(int server, const Deadline& deadline) {
  Channel& asked = channels_.at(static_cast<std::size_t>(server));
  while (true) {
    for (Channel& channel : channels_) pump(channel);
    if (!asked.answers.empty()) break;
    if (deadline.expired())
      lose(asked, "no answer in time; is it stopped, or does it wait for another worker?");
    std::vector<pollfd> polled;
    for (const Channel& channel : channels_) {
      if (channel.parted) continue;
      polled.push_back(
          {channel.link.fd(), static_cast<short>(channel.link.sends() ? POLLIN | POLLOUT : POLLIN), 0});
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
