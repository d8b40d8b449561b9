#include "worker/gpu_checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace dtrain {
namespace {

constexpr const char* kGetDriver =
    "install NVIDIA's driver (apt install nvidia-driver, or your site's), then load it: modprobe nvidia";
constexpr const char* kGiveToContainer =
    "start the container with its GPUs: docker run --gpus all, podman --device nvidia.com/gpu=all, "
    "apptainer --nv";

// The oldest driver branch that runs programs of a CUDA major version; CUDA's release notes, table 2.
int oldest_branch(int cuda_major) {
  switch (cuda_major) {
    case 12:
      return 525;
    case 13:
      return 580;
    default:
      return 0;
  }
}

std::string driver_fix(const Version& supported, const Version& runtime) {
  const int branch = oldest_branch(runtime.major);
  return fmt::format("install a driver for CUDA {}{}, or build dtrain with CUDA {}", runtime.major,
                     branch == 0 ? "" : fmt::format(" ({} or later)", branch), supported.major);
}

}  // namespace

Finding judge_driver(const NvidiaDriver& driver) {
  constexpr const char* kSubject = "gpu driver";
  if (driver.version.empty() && driver.in_slots > 0) {
    return {kSubject, Verdict::bad,
            fmt::format("{} NVIDIA GPU{} in the PCI slots, but no driver is loaded: training runs on the CPU",
                        driver.in_slots, driver.in_slots == 1 ? " is" : "s are"),
            kGetDriver};
  }
  if (driver.version.empty() && !driver.reachable) {
    return {kSubject, Verdict::note,
            "no NVIDIA driver and no NVIDIA GPU is in this machine: training runs on the CPU",
            "nothing to do for the CPU; on a machine with a GPU check that nvidia-smi works first"};
  }
  if (!driver.reachable) {
    return {kSubject, Verdict::bad,
            fmt::format("driver {} is loaded, but this process cannot reach it: there is no /dev/nvidiactl",
                        driver.version),
            kGiveToContainer};
  }
  return {kSubject, Verdict::good,
          fmt::format("{}{}{}", driver.version.empty() ? "of the host" : driver.version,
                      driver.gpus.empty() ? "" : ": ", fmt::join(driver.gpus, ", ")),
          ""};
}

Finding judge_driver_library(const Version& supported, const Version& runtime, const NvidiaDriver& driver) {
  constexpr const char* kSubject = "CUDA driver";
  if (!supported.known()) {
    const bool expected = !driver.version.empty() || driver.reachable;
    return {kSubject, expected ? Verdict::bad : Verdict::note,
            fmt::format("libcuda.so.1, a part of the driver, was not found; CUDA runtime {} needs it",
                        runtime.text()),
            expected ? "install the driver's libraries (apt install libcuda1), or in a container set "
                       "NVIDIA_DRIVER_CAPABILITIES=compute,utility"
                     : ""};
  }
  if (supported.major < runtime.major) {
    return {
        kSubject, Verdict::bad,
        fmt::format("runs CUDA up to {}, but the module was built with {}", supported.text(), runtime.text()),
        driver_fix(supported, runtime)};
  }
  if (supported < runtime) {
    return {kSubject, Verdict::good,
            fmt::format("for CUDA {}; runtime {} of the same major version works with it", supported.text(),
                        runtime.text()),
            ""};
  }
  return {kSubject, Verdict::good, fmt::format("for CUDA {}, runtime {}", supported.text(), runtime.text()),
          ""};
}

Finding judge_library(const LibraryVersion& library) {
  const std::string from = library.file.empty() ? "inside the module" : "from " + library.file;
  const std::string both =
      fmt::format("{} was loaded, built with {}, {}", library.loaded.text(), library.built.text(), from);
  if (!library.loaded.known()) {
    return {library.name, Verdict::bad, fmt::format("does not report its version, {}", from),
            fmt::format("install {} {} again", library.name, library.built.text())};
  }
  if (library.loaded == library.built)
    return {library.name, Verdict::good, fmt::format("{}, as built with, {}", library.built.text(), from),
            ""};
  if (library.loaded.major == library.built.major && library.loaded > library.built)
    return {library.name, Verdict::good, both, ""};
  return {
      library.name, Verdict::bad, both,
      fmt::format("put {} {} or a later {} in front in LD_LIBRARY_PATH, or build dtrain again with this one",
                  library.name, library.built.text(), library.built.major)};
}

bool has_code_for(std::string_view architectures, const Version& capability) {
  const int wanted = capability.major * 10 + capability.minor;
  while (!architectures.empty()) {
    const std::string_view entry = architectures.substr(0, architectures.find(','));
    architectures.remove_prefix(std::min(entry.size() + 1, architectures.size()));
    int number = 0;
    const auto [end, error] = std::from_chars(entry.data(), entry.data() + entry.size(), number);
    if (error != std::errc()) continue;
    const bool machine_code = !entry.ends_with("-virtual"), ptx = !entry.ends_with("-real");
    if (machine_code && number / 10 == capability.major && number <= wanted) return true;
    if (ptx && number <= wanted) return true;
  }
  return false;
}

Finding judge_gpu(int index, const std::string& name, const Version& capability, double memory_gib,
                  std::string_view architectures) {
  const std::string subject = fmt::format("gpu {}", index);
  const std::string text = fmt::format("{}, {:.1f} GiB, compute capability {}.{}", name, memory_gib,
                                       capability.major, capability.minor);
  if (has_code_for(architectures, capability)) return {subject, Verdict::good, text, ""};
  return {
      subject, Verdict::bad, fmt::format("{}; the module has code for {} only", text, architectures),
      fmt::format("build dtrain with -DCMAKE_CUDA_ARCHITECTURES={}{}", capability.major, capability.minor)};
}

}  // namespace dtrain
