#include "tests/launch/nodes.h"

#include <algorithm>

#include "cluster/net/endpoint.h"
#include "runtime/base/error.h"

namespace dtrain::test {

int free_port_pair() {
  const Deadline deadline = Deadline::after(std::chrono::seconds(10));
  while (true) {
    const Listener first = listen_on_lasting_port("127.0.0.1", deadline);
    try {
      listen_on("127.0.0.1", static_cast<std::uint16_t>(first.port() + 1), deadline);
      return first.port();
    } catch (const Error&) {
      if (deadline.expired()) throw;
    }
  }
}

Nodes::Nodes(int count, const std::vector<std::string>& arguments, const std::string& nnodes,
             const std::map<std::string, std::string>& environment) {
  for (int node = 0; node < count; ++node)
    add(node, arguments, nnodes.empty() ? std::to_string(count) : nnodes, environment);
}

Running& Nodes::add(int node_rank, const std::vector<std::string>& arguments, const std::string& nnodes,
                    const std::map<std::string, std::string>& environment, const std::string& launcher) {
  std::vector<std::string> command{launcher, "--nnodes=" + nnodes, "--node_rank=" + std::to_string(node_rank),
                                   "--master_addr=127.0.0.1", "--master_port=" + std::to_string(port_)};
  command.insert(command.end(), arguments.begin(), arguments.end());
  launchers_.push_back(std::make_unique<Running>(command, environment));
  return *launchers_.back();
}

int Nodes::lines() const {
  std::ptrdiff_t lines = 0;
  for (const auto& launcher : launchers_) {
    const std::string out = launcher->out();
    lines += std::count(out.begin(), out.end(), '\n');
  }
  return static_cast<int>(lines);
}

std::size_t Nodes::marked() const {
  std::size_t left = 0;
  for (const auto& launcher : launchers_) left += launcher->marked().size();
  return left;
}

std::string Nodes::errors() const {
  std::string text;
  for (std::size_t i = 0; i < launchers_.size(); ++i)
    text += "--- launcher " + std::to_string(i) + "\n" + launchers_[i]->err();
  return text;
}

}  // namespace dtrain::test
