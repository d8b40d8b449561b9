#include "collectives/tcp/peer_address.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "runtime/base/error.h"

namespace dtrain::tcp {
namespace {

constexpr std::string_view kSecretLabel("dtrain link 2: secret of a listening rank\0", 42);

std::string service_of(const Purpose& purpose) { return fmt::format("rank {}", purpose.to); }

// Of the connections to one listening rank.
Digest link_secret(const std::optional<Token>& token, std::string_view group, std::string_view nonce) {
  const std::string lengths = fmt::format("{} {} ", group.size(), nonce.size());
  return MacKey(token ? token->bytes() : std::string_view()).sign({kSecretLabel, lengths, group, nonce});
}

// The secret covers the group's name.
net::Admit admit_ranks_above(const Purpose& purpose) {
  return [purpose](const net::Identity& peer) -> std::string {
    if (peer.rank > purpose.to && peer.rank < purpose.size && peer.service == service_of(purpose)) return {};
    return fmt::format("expected a rank above {} and below {} on its way to {}, got rank {} on its way to {}",
                       purpose.to, purpose.size, service_of(purpose), peer.rank, peer.service);
  };
}

Listener checked(Listener listener, const std::optional<Token>& token) {
  require_token(token, listener.address, "backend tcp");
  return listener;
}

}  // namespace

std::string PeerAddress::text() const {
  return host + '\n' + address + '\n' + nonce + '\n' + std::string(name_of(protection));
}

PeerAddress PeerAddress::parse(const std::string& text) {
  std::array<std::string, 4> lines;
  std::size_t begin = 0;
  for (std::string& line : lines) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    line = text.substr(std::min(begin, text.size()), end - std::min(begin, end));
    begin = end + 1;
  }
  if (lines[1].empty() || lines[2].empty())
    throw PeerError("expected a rank's address in the store, found '" + text + "'", {});
  return {lines[0], lines[1], lines[2], protection_named(lines[3], "a rank's address in the store")};
}

ListeningRank::ListeningRank(const std::string& interface, const std::string& host, const Purpose& purpose,
                             const std::optional<Token>& token, const Deadline& deadline)
    : address{host, {}, make_token().hex(), purpose.protection},
      acceptor(checked(listen_on(interface, 0, deadline), token),
               link_secret(token, purpose.group, address.nonce).view(), purpose.protection,
               admit_ranks_above(purpose), {.expected = static_cast<std::size_t>(purpose.size)}) {
  address.address = acceptor.address().text();
}

net::Connector connector_to(const PeerAddress& peer, int from, const Purpose& purpose,
                            const std::optional<Token>& token, const Deadline& deadline) {
  return {resolve(parse_endpoint(peer.address, "a rank's address"), deadline),
          link_secret(token, purpose.group, peer.nonce).view(),
          {service_of(purpose), "rank", from, purpose.protection}};
}

}  // namespace dtrain::tcp
