// What `dtrain doctor` says about GPUs: the driver, the module with its libraries as built and as loaded, and
// each GPU.
#include <fmt/format.h>

#include "collectives/nccl_module.h"
#include "runtime/device/cuda/cuda_device.h"
#include "runtime/device/cuda/module.h"
#include "worker/doctor.h"
#include "worker/gpu_checks.h"

namespace dtrain {
namespace {

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

// Optional: a machine without a GPU is well, a module that cannot use the one there is is not.
Finding check_module(const NvidiaDriver& driver) {
  try {
    return {"gpu", Verdict::good, cuda::describe(), ""};
  } catch (const UsageError& error) {
    return {"gpu", driver.reachable ? Verdict::bad : Verdict::note, error.what(), ""};
  }
}

void add_module_findings(const NvidiaDriver& driver, std::vector<Finding>& findings) {
  const cuda::ModuleDetails details = cuda::module_details();
  findings.push_back(judge_driver_library(details.driver, details.runtime, driver));
  for (const LibraryVersion& library : details.libraries) findings.push_back(judge_library(library));
  for (const cuda::GpuReport& gpu : details.gpus) {
    findings.push_back(judge_gpu(gpu.index, gpu.name, gpu.capability,
                                 static_cast<double>(gpu.memory_bytes) / kGiB, details.architectures));
  }
}

// The driver and what a real module was built for do not matter to the emulated machine.
std::vector<Finding> examine_emulated_gpus(const NvidiaDriver& driver) {
  std::vector<Finding> findings = {check_module(driver)};
  try {
    for (const cuda::GpuReport& gpu : cuda::module_details().gpus) {
      findings.push_back({fmt::format("gpu {}", gpu.index), Verdict::good,
                          gpu.name + ", emulated in software: right results, but slow", ""});
    }
  } catch (const UsageError&) {
    findings.front().verdict = Verdict::bad;  // asked for, and not there
  }
  return findings;
}

}  // namespace

std::vector<Finding> examine_gpus(bool built_cuda, bool built_nccl) {
  const NvidiaDriver driver = read_nvidia_driver();
  if (cuda::emulation_asked_for()) return examine_emulated_gpus(driver);
  std::vector<Finding> findings = {judge_driver(driver), check_module(driver)};
  try {
    if (built_cuda) add_module_findings(driver, findings);
    if (built_nccl) findings.push_back(judge_library(nccl_version()));
  } catch (const UsageError&) {
    // check_module() has said why there is no module.
  }
  return findings;
}

}  // namespace dtrain
