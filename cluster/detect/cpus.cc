// Reads which cores there are from the scheduler, /sys and the control group.
#include "cluster/detect/cpus.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <map>

namespace dtrain {
namespace {

namespace fs = std::filesystem;

std::string first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

CpuList allowed_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  CpuList cpus;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

std::vector<CpuList> numa_nodes() {
  std::map<int, CpuList> nodes;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/sys/devices/system/node", error)) {
    const std::string name = entry.path().filename();
    int node = 0;
    if (!name.starts_with("node")) continue;
    const auto [end, bad] = std::from_chars(name.data() + 4, name.data() + name.size(), node);
    if (bad == std::errc() && end == name.data() + name.size())
      nodes[node] = parse_cpu_list(first_line(entry.path() / "cpulist"));
  }
  std::vector<CpuList> list;
  for (auto& [node, cpus] : nodes) list.push_back(std::move(cpus));
  return list;
}

std::vector<CpuList> sockets_of(const CpuList& cpus) {
  std::map<std::string, CpuList> sockets;
  for (const int cpu : cpus) {
    const fs::path topology = "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology";
    sockets[first_line(topology / "physical_package_id")].push_back(cpu);
  }
  std::vector<CpuList> list;
  for (auto& [id, members] : sockets) list.push_back(std::move(members));
  return list;
}

// The quota of the own control group (version 2, or version 1 as containers see it), rounded up to whole
// cores.
int quota_cores() {
  std::ifstream version2("/sys/fs/cgroup/cpu.max");
  std::string quota;
  double period = 0, limit = 0;
  if (!(version2 >> quota >> period)) {
    std::ifstream quota1("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"),
        period1("/sys/fs/cgroup/cpu/cpu.cfs_period_us");
    quota1 >> quota;
    period1 >> period;
  }
  const auto [end, bad] = std::from_chars(quota.data(), quota.data() + quota.size(), limit);
  if (quota.empty() || bad != std::errc() || limit <= 0 || period <= 0) return 0;
  return std::max(1, static_cast<int>((limit + period - 1) / period));
}

}  // namespace

CpuList parse_cpu_list(const std::string& text) {
  CpuList cpus;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at < end) {
    int low = 0;
    auto parsed = std::from_chars(at, end, low);
    if (parsed.ec != std::errc()) break;
    int high = low;
    if (parsed.ptr < end && *parsed.ptr == '-') {
      parsed = std::from_chars(parsed.ptr + 1, end, high);
      if (parsed.ec != std::errc() || high < low || high - low > 65536) break;
    }
    for (int cpu = low; cpu <= high; ++cpu) cpus.push_back(cpu);
    at = parsed.ptr;
    if (at < end && *at != ',') break;
    ++at;
  }
  return cpus;
}

std::string cpu_list_text(const CpuList& cpus) {
  std::string text;
  for (std::size_t at = 0; at < cpus.size();) {
    std::size_t last = at;
    while (last + 1 < cpus.size() && cpus[last + 1] == cpus[last] + 1) ++last;
    if (!text.empty()) text += ',';
    text += std::to_string(cpus[at]);
    if (last > at) text.append(1, '-').append(std::to_string(cpus[last]));
    at = last + 1;
  }
  return text;
}

CpuLayout read_cpu_layout(bool with_groups) {
  CpuLayout layout;
  layout.allowed = allowed_cpus();
  if (with_groups) {
    layout.nodes = numa_nodes();
    layout.sockets = sockets_of(layout.allowed);
  }
  layout.quota = quota_cores();
  return layout;
}

int usable_cores(const CpuLayout& layout) {
  const int allowed = std::max<int>(1, static_cast<int>(layout.allowed.size()));
  return layout.quota > 0 ? std::min(allowed, layout.quota) : allowed;
}

}  // namespace dtrain
