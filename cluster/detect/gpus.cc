// Counts GPUs without CUDA.
#include "cluster/detect/gpus.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <filesystem>
#include <fstream>

namespace dtrain {
namespace {

namespace fs = std::filesystem;

bool all_digits(const std::string& text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c); });
}

std::vector<std::string> pci_addresses(const std::string& root) {
  std::vector<std::string> addresses;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(root + "/proc/driver/nvidia/gpus", error)) {
    addresses.push_back(entry.path().filename());
  }
  std::sort(addresses.begin(), addresses.end());
  return addresses;
}

std::string trimmed(const std::string& text) {
  const auto first = text.find_first_not_of(" \t");
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

// Whether an entry of CUDA_VISIBLE_DEVICES names a device at all.
bool names_device(const std::string& entry, int installed) {
  if (entry.starts_with("GPU-") || entry.starts_with("MIG-")) return true;
  if (!all_digits(entry)) return false;
  int index = 0;
  const auto [end, error] = std::from_chars(entry.data(), entry.data() + entry.size(), index);
  return error == std::errc() && (installed == 0 || index < installed);
}

}  // namespace

int installed_gpus(const std::string& root) {
  const std::size_t by_driver = pci_addresses(root).size();
  if (by_driver > 0) return static_cast<int>(by_driver);
  int nodes = 0;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(root + "/dev", error)) {
    const std::string name = entry.path().filename();
    if (name.starts_with("nvidia") && all_digits(name.substr(6))) ++nodes;
  }
  return nodes;
}

std::vector<std::string> visible_gpus(const std::optional<std::string>& variable, int installed) {
  std::vector<std::string> visible;
  if (!variable) {
    for (int i = 0; i < installed; ++i) visible.push_back(std::to_string(i));
    return visible;
  }
  std::size_t from = 0;
  while (from <= variable->size()) {
    const std::size_t to = std::min(variable->find(',', from), variable->size());
    const std::string entry = trimmed(variable->substr(from, to - from));
    if (!names_device(entry, installed)) break;
    visible.push_back(entry);
    from = to + 1;
  }
  return visible;
}

int installed_xpus(const std::string& root) {
  int found = 0;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(root + "/sys/class/drm", error)) {
    if (!entry.path().filename().string().starts_with("renderD")) continue;
    std::ifstream file(entry.path() / "device/vendor");
    std::string vendor;
    if (file >> vendor && vendor == "0x8086") ++found;
  }
  return found;
}

int visible_xpus(const std::optional<std::string>& mask, int installed) {
  if (!mask) return installed;
  int visible = 0;
  for (std::size_t from = 0; from <= mask->size();) {
    const std::size_t to = std::min(mask->find(',', from), mask->size());
    const std::string entry = trimmed(mask->substr(from, to - from));
    if (!entry.empty() && std::isdigit(static_cast<unsigned char>(entry[0])) != 0) ++visible;
    from = to + 1;
  }
  return installed == 0 ? 0 : visible;
}

std::optional<int> numa_node_of_gpu(int index, const std::string& root) {
  const auto addresses = pci_addresses(root);
  if (index < 0 || index >= static_cast<int>(addresses.size())) return std::nullopt;
  std::ifstream file(root + "/sys/bus/pci/devices/" + addresses[static_cast<std::size_t>(index)] +
                     "/numa_node");
  int node = -1;
  if (!(file >> node) || node < 0) return std::nullopt;
  return node;
}

}  // namespace dtrain
