#include "collectives/p2p/algorithm/topology.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

namespace dtrain::p2p {
namespace {

std::vector<std::uint64_t> all_different(int size) {
  std::vector<std::uint64_t> identities(static_cast<std::size_t>(size));
  std::iota(identities.begin(), identities.end(), 0);
  return identities;
}

std::string counted(int count, const char* what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

}  // namespace

Topology::Topology(int size) : Topology(all_different(size)) {}

Topology::Topology(std::span<const std::uint64_t> host_identities) {
  std::map<std::uint64_t, int> known;
  for (const std::uint64_t identity : host_identities) {
    const int host = known.try_emplace(identity, static_cast<int>(known.size())).first->second;
    if (host == hosts()) members_.emplace_back();
    std::vector<int>& members = members_[static_cast<std::size_t>(host)];
    index_.push_back(static_cast<int>(members.size()));
    members.push_back(size());
    host_of_.push_back(host);
  }
}

int Topology::gateway(int host, int rank) const noexcept {
  const std::vector<int>& there = members(host);
  return there[static_cast<std::size_t>(index_[static_cast<std::size_t>(rank)]) % there.size()];
}

int Topology::most_members() const noexcept {
  std::size_t most = 0;
  for (const std::vector<int>& members : members_) most = std::max(most, members.size());
  return static_cast<int>(most);
}

std::string Topology::text() const {
  const int most = most_members();
  if (most * hosts() == size()) return counted(hosts(), "host") + " x " + counted(most, "rank");
  return counted(hosts(), "host") + ", " + counted(size(), "rank");
}

}  // namespace dtrain::p2p
