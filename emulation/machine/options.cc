#include "emulation/machine/options.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <stdexcept>

#include "emulation/machine/faults.h"

#ifndef EMULATION_PREFIX
#define EMULATION_PREFIX "EMULATED_CUDA_"
#endif

namespace emulation {
namespace {

/// False for a value that is no number.
template <class Number>
bool read(const char* name, Number& number) {
  const char* const text = std::getenv((std::string(EMULATION_PREFIX) + name).c_str());
  if (text == nullptr || *text == '\0') return true;
  const std::string_view value(text);
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  return error == std::errc{} && end == value.data() + value.size();
}

/// Whether `list`, of words and commas, has `wanted`.
bool names(std::string_view list, std::string_view wanted) {
  while (!list.empty()) {
    const std::size_t comma = std::min(list.find(','), list.size());
    if (list.substr(0, comma) == wanted) return true;
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return false;
}

int device_named(int gpus, std::string_view name) {
  if (name.starts_with("GPU-")) {
    int found = -1;
    for (int gpu = 0; gpu < gpus; ++gpu) {
      if (!std::string_view(uuid_text(gpu)).starts_with(name)) continue;
      if (found >= 0) return -1;  // two of them
      found = gpu;
    }
    return found;
  }
  int number = -1;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (error != std::errc{} || end != name.data() + name.size()) return -1;
  return number < gpus ? number : -1;
}

}  // namespace

std::string uuid_text(int gpu) {
  char text[64];
  std::snprintf(text, sizeof text, "GPU-454d5500-0000-0000-0000-%012x", static_cast<unsigned>(gpu));
  return text;
}

std::vector<int> visible_devices(int gpus, const char* text) {
  std::vector<int> all(static_cast<std::size_t>(std::max(gpus, 0)));
  std::iota(all.begin(), all.end(), 0);
  if (text == nullptr) return all;
  std::vector<int> chosen;
  std::string_view rest(text);
  while (!rest.empty()) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    std::string_view name = rest.substr(0, comma);
    rest.remove_prefix(std::min(comma + 1, rest.size()));
    while (name.starts_with(' ')) name.remove_prefix(1);
    while (name.ends_with(' ')) name.remove_suffix(1);
    const int device = device_named(gpus, name);
    if (device < 0) break;
    if (std::find(chosen.begin(), chosen.end(), device) != chosen.end()) return {};
    chosen.push_back(device);
  }
  return chosen;
}

Options read_options() {
  Options options;
  const bool good = read("GPUS", options.gpus) && read("SEED", options.seed) &&
                    read("MULTIPROCESSORS", options.multiprocessors) &&
                    read("MEMORY_BYTES", options.memory_bytes);
  if (!good || options.gpus < 0 || options.multiprocessors < 1) {
    std::fprintf(stderr,
                 "emulated CUDA machine: a variable %s… has a value that is no number; no GPU is visible\n",
                 EMULATION_PREFIX);
    options.gpus = 0;
    options.multiprocessors = 1;
  }
  const auto text = [](const char* name) {
    const char* const value = std::getenv((std::string(EMULATION_PREFIX) + name).c_str());
    return std::string(value == nullptr ? "" : value);
  };
  options.faults = text("FAULTS");
  options.races = names(text("CHECK"), "races");
  options.twice = names(text("CHECK"), "twice");
  options.counts_file = text("COUNTS");
  try {
    const Faults readable(options.faults);
  } catch (const std::invalid_argument& part) {
    std::fprintf(stderr, "emulated CUDA machine: %sFAULTS: no such fault as '%s'; no GPU is visible\n",
                 EMULATION_PREFIX, part.what());
    options.faults.clear();
    options.gpus = 0;
  }
  options.visible = visible_devices(options.gpus, std::getenv("CUDA_VISIBLE_DEVICES"));
  return options;
}

}  // namespace emulation
