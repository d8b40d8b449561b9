// Every way in which scontrol can fail means "not known".
#include "cluster/detect/slurm_node.h"

#include <fmt/format.h>

#include <cctype>

#include "cluster/detect/command.h"
#include "cluster/net/endpoint.h"
#include "runtime/base/error.h"

namespace dtrain {
namespace {

bool can_be_used(const std::string& host, const Deadline& deadline) {
  try {
    resolve({host, 0}, deadline);
  } catch (const Error&) {
    return false;
  }
  return !is_loopback_name(host, deadline);
}

}  // namespace

std::optional<std::string> parse_node_address(std::string_view text) {
  const auto value_of = [&](std::string_view key) -> std::string_view {
    std::size_t at = text.find(key);
    while (at != std::string_view::npos && at > 0 &&
           std::isspace(static_cast<unsigned char>(text[at - 1])) == 0)
      at = text.find(key, at + 1);
    if (at == std::string_view::npos) return {};
    const std::string_view rest = text.substr(at + key.size());
    return rest.substr(0, rest.find_first_of(" \t\r\n"));
  };
  const std::string_view address = value_of("NodeAddr=");
  if (address.empty() || address == "(null)" || address == value_of("NodeName=")) return std::nullopt;
  return std::string(address);
}

std::optional<std::string> slurm_node_address(const std::string& node, const Deadline& deadline) {
  const auto text = output_of({"scontrol", "show", "node", node, "--oneliner"}, deadline);
  return text ? parse_node_address(*text) : std::nullopt;
}

void use_reachable_master(Placement& placement, Duration patience) {
  if (placement.system != JobSystem::slurm || !placement.master_addr) return;
  if (can_be_used(*placement.master_addr, Deadline::after(patience))) return;
  const auto address = slurm_node_address(*placement.master_addr, Deadline::after(patience));
  if (!address) return;
  placement.explanations["master_addr"] +=
      fmt::format("; '{}' does not resolve to an address that others reach, Slurm has {} as its NodeAddr",
                  *placement.master_addr, *address);
  placement.master_addr = address;
}

}  // namespace dtrain
