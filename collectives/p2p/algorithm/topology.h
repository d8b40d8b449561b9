// Which ranks of a group share a host, and who of a host deals with which rank of another.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace dtrain::p2p {

/// Hosts are numbered in the order of their first ranks.
class Topology {
 public:
  /// Every rank on a host of its own.
  explicit Topology(int size);
  /// Ranks with equal identities share a host.
  explicit Topology(std::span<const std::uint64_t> host_identities);

  int size() const noexcept { return static_cast<int>(host_of_.size()); }
  int hosts() const noexcept { return static_cast<int>(members_.size()); }
  int host_of(int rank) const noexcept { return host_of_[static_cast<std::size_t>(rank)]; }
  /// Ascending.
  const std::vector<int>& members(int host) const noexcept {
    return members_[static_cast<std::size_t>(host)];
  }
  bool share_host(int a, int b) const noexcept { return host_of(a) == host_of(b); }
  /// The rank of `host` that all its messages to and from `rank` go through: ranks of two hosts are paired in
  /// order, so that each moves its share. On its own host that is `rank` itself.
  int gateway(int host, int rank) const noexcept;

  /// Some ranks share a host and some do not.
  bool is_mixed() const noexcept { return hosts() > 1 && hosts() < size(); }
  /// The ranks of the largest host.
  int most_members() const noexcept;
  /// "2 hosts x 4 ranks", "3 hosts, 8 ranks"
  std::string text() const;

 private:
  std::vector<int> host_of_, index_;       // by rank; index: among its host's members
  std::vector<std::vector<int>> members_;  // by host
};

}  // namespace dtrain::p2p
