// Launchers of several nodes on one machine, meeting on loopback.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/launch/running.h"
#include "tests/support/process.h"

namespace dtrain::test {

/// A port of 127.0.0.1 that was free a moment ago, like the one after it: launchers meet there.
int free_port_pair();

/// The launchers of one job; node_rank is the place in the list.
class Nodes {
 public:
  /// Starts `count` launchers with `arguments` after --nnodes (which is `nnodes`, or `count`), --node_rank,
  /// --master_addr and --master_port.
  Nodes(int count, const std::vector<std::string>& arguments, const std::string& nnodes = "",
        const std::map<std::string, std::string>& environment = {});

  Running& operator[](int node) { return *launchers_[static_cast<std::size_t>(node)]; }
  int count() const { return static_cast<int>(launchers_.size()); }
  int port() const { return port_; }
  /// One more launcher, with these options and program; other node_ranks and options can be had that way, and
  /// another installation's `launcher`.
  Running& add(int node_rank, const std::vector<std::string>& arguments, const std::string& nnodes,
               const std::map<std::string, std::string>& environment = {},
               const std::string& launcher = program("dtrain-launch"));
  /// How many lines all launchers' workers have printed.
  int lines() const;
  /// Processes that any of them has left.
  std::size_t marked() const;
  /// What all launchers said, each introduced by its number; for failure messages.
  std::string errors() const;

 private:
  int port_ = free_port_pair();
  std::vector<std::unique_ptr<Running>> launchers_;
};

}  // namespace dtrain::test
