#include "runtime/device/cuda/module.h"

#include <cstdlib>
#include <filesystem>

#include "runtime/base/error.h"
#include "runtime/base/files/module_file.h"
#include "runtime/device/cuda/cuda_device.h"
#include "runtime/device/cuda/loading/libraries.h"

namespace dtrain::cuda {
namespace {

namespace fs = std::filesystem;

constexpr const char* kEmulatedVariable = "DTRAIN_EMULATED_GPUS";
constexpr const char* kHowToGet =
    "install the package that has it (Debian: dtrain-cuda), build it with -DDTRAIN_WITH_CUDA=ON (CUDA "
    "Toolkit "
    "12.2 or later needed), set DTRAIN_CUDA_MODULE to its path, or use device cpu";
constexpr const char* kHowToGetEmulated =
    "DTRAIN_EMULATED_GPUS is set: install the package that has the emulated machine (Debian: "
    "dtrain-emulated-gpus), build it with -DDTRAIN_EMULATED_CUDA=ON (CUDA's headers needed), or unset it";

std::vector<fs::path> folders_here() {
  std::error_code ignored;
  return library_folders(fs::read_symlink("/proc/self/exe", ignored).parent_path(), current_environment());
}

ModuleFile module_file() {
  const bool emulated = emulation_asked_for();
  const char* const how = emulated ? kHowToGetEmulated : kHowToGet;
  return {.name = "CUDA module",
          .file = emulated ? "libdtrain_cuda_emulated.so" : "libdtrain_cuda.so",
          .path_variable = "DTRAIN_CUDA_MODULE",
          .head = "dtrain_cuda_module",
          .interface = kModuleInterface,
          .when_missing = how,
          .when_not_usable = how,
          .library_folders = folders_here,
          .when_libraries_missing = how_to_get_libraries};
}

const DevicePlugin& device_part() {
  return *reinterpret_cast<DevicePluginFunction>(module_symbol("dtrain_cuda_device"))();
}

}  // namespace

void* module_symbol(const char* name) { return dtrain::module_symbol(module_file(), name); }

bool emulation_asked_for() noexcept {
  const char* const text = std::getenv(kEmulatedVariable);
  return text != nullptr && *text != '\0';
}

ModuleDetails module_details() { return device_part().details(); }

ModuleNotices::ModuleNotices(std::function<void(const std::string&)> listener) {
  device_part().listen(std::move(listener));
}

ModuleNotices::~ModuleNotices() {
  try {
    device_part().listen(nullptr);
  } catch (const std::exception&) {  // the module was there when this was made
  }
}

const DeviceWorkPlugin& module_work() { return device_part().work(); }

SpanListener& module_profiler() { return device_part().profiler(); }

int device_count() noexcept {
  try {
    std::error_code ignored;
    const bool driver =
        fs::exists("/dev/nvidiactl", ignored) || fs::exists("/dev/dxg", ignored) || emulation_asked_for();
    return driver ? device_part().report().devices : 0;
  } catch (const std::exception&) {
    return 0;
  }
}

std::string describe() {
  const ModuleReport report = device_part().report();
  if (!report.problem.empty()) throw UsageError("device cuda: " + report.problem);
  return std::to_string(report.devices) + (report.devices == 1 ? " device; " : " devices; ") + report.summary;
}

std::shared_ptr<Device> make_cuda_device(int index, const DeviceOptions& options) {
  const DevicePlugin& part = device_part();
  const ModuleReport report = part.report();
  if (!report.problem.empty()) throw UsageError("device cuda: " + report.problem);
  if (index == kOwnDevice) index = report.devices == 1 ? 0 : options.local_rank;
  if (index >= report.devices) {
    throw UsageError("device cuda:" + std::to_string(index) + ": expected an index below " +
                     std::to_string(report.devices) +
                     ", the number of visible GPUs; start at most one worker a GPU, "
                     "and check CUDA_VISIBLE_DEVICES");
  }
  return part.make(index, options);
}

}  // namespace dtrain::cuda
