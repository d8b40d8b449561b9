#include "worker/nvidia_driver.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

namespace dtrain {
namespace {

namespace fs = std::filesystem;

std::string read_text(const fs::path& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<fs::path> entries(const fs::path& folder) {
  std::vector<fs::path> paths;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder, none)) paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  return paths;
}

// "Model: \t\t NVIDIA H100 80GB HBM3" among the lines of a GPU's information.
std::string model_of(const fs::path& gpu) {
  constexpr std::string_view kKey = "Model:";
  std::istringstream lines(read_text(gpu / "information"));
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(kKey)) continue;
    const std::size_t start = line.find_first_not_of(" \t", kKey.size());
    if (start != std::string::npos) return line.substr(start);
  }
  return "GPU at " + gpu.filename().string();
}

// Display controllers (class 0x03) of vendor 0x10de.
bool is_nvidia_gpu(const fs::path& device) {
  return read_text(device / "vendor").starts_with("0x10de") &&
         read_text(device / "class").starts_with("0x03");
}

}  // namespace

std::string parse_driver_version(std::string_view text) {
  std::istringstream words{std::string(text.substr(0, text.find('\n')))};
  for (std::string word; words >> word;) {
    const bool number = std::isdigit(static_cast<unsigned char>(word.front())) != 0 &&
                        word.find_first_not_of("0123456789.") == std::string::npos;
    if (number && word.find('.') != std::string::npos) return word;
  }
  return {};
}

NvidiaDriver read_nvidia_driver(const std::string& root) {
  NvidiaDriver driver;
  driver.version = parse_driver_version(read_text(root + "/proc/driver/nvidia/version"));
  for (const fs::path& gpu : entries(root + "/proc/driver/nvidia/gpus")) driver.gpus.push_back(model_of(gpu));
  const auto devices = entries(root + "/sys/bus/pci/devices");
  driver.in_slots = static_cast<int>(std::count_if(devices.begin(), devices.end(), is_nvidia_gpu));
  std::error_code none;
  driver.reachable = fs::exists(root + "/dev/nvidiactl", none) || fs::exists(root + "/dev/dxg", none);
  return driver;
}

}  // namespace dtrain
