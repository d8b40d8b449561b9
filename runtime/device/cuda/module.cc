#include "runtime/device/cuda/module.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/unique.h"
#include "runtime/device/cuda/cuda_device.h"

namespace dtrain::cuda {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPathVariable = "DTRAIN_CUDA_MODULE";
constexpr const char* kEmulatedVariable = "DTRAIN_EMULATED_GPUS";
constexpr std::string_view kHowToGet =
    "build it with -DDTRAIN_WITH_CUDA=ON (CUDA Toolkit 12.2 or later needed), set DTRAIN_CUDA_MODULE to its "
    "path, or use device cpu";
constexpr std::string_view kHowToGetEmulated =
    "DTRAIN_EMULATED_GPUS is set: build the emulated machine with -DDTRAIN_EMULATED_CUDA=ON (CUDA's headers "
    "needed), "
    "or unset it";

struct HandleTraits {
  using Handle = void*;
  static Handle invalid() noexcept { return nullptr; }
  static void close(Handle handle) noexcept { ::dlclose(handle); }
};

bool is_set(const char* variable) {
  const char* const text = std::getenv(variable);
  return text != nullptr && *text != '\0';
}

std::vector<std::string> places() {
  const std::string file = emulation_asked_for() ? "libdtrain_cuda_emulated.so" : "libdtrain_cuda.so";
  if (is_set(kPathVariable)) return {std::getenv(kPathVariable)};
  std::vector<std::string> paths;
  std::error_code ignored;
  const fs::path folder = fs::read_symlink("/proc/self/exe", ignored).parent_path();
  for (const fs::path& candidate :
       {folder / file, folder / "../lib" / file, folder / (".." DTRAIN_LIBDIR_BESIDE_BIN) / file,
        fs::path(DTRAIN_LIBDIR_INSTALLED) / file}) {
    if (fs::exists(candidate, ignored)) paths.push_back(candidate.string());
  }
  paths.push_back(file);  // the dynamic linker's own places
  return paths;
}

Unique<HandleTraits> open_file() {
  // NODELETE: devices, and CUDA itself, outlive any one handle.
  constexpr int kFlags = RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE;
  std::string reason;
  for (const std::string& path : places()) {
    if (Unique<HandleTraits> handle(::dlopen(path.c_str(), kFlags)); handle) return handle;
    const char* text = ::dlerror();
    if (reason.empty() && text != nullptr) reason = text;
  }
  throw UsageError("the CUDA module cannot be loaded (" + reason + "); " +
                   std::string(emulation_asked_for() ? kHowToGetEmulated : kHowToGet));
}

void* find(void* handle, const char* name) {
  void* symbol = ::dlsym(handle, name);
  if (symbol == nullptr) {
    throw UsageError("the CUDA module has no part '" + std::string(name) +
                     "': it was built without the library for it; the table at the end of configure says "
                     "which and how to get it");
  }
  return symbol;
}

const DevicePart& device_part() {
  return *reinterpret_cast<DevicePartFunction>(module_symbol("dtrain_cuda_device"))();
}

}  // namespace

void* module_symbol(const char* name) {
  const Unique<HandleTraits> handle = open_file();
  const ModuleHead& head = *reinterpret_cast<ModuleHeadFunction>(find(handle.get(), "dtrain_cuda_module"))();
  if (head.interface != kModuleInterface || std::string_view(head.version) != DTRAIN_VERSION) {
    throw UsageError("the CUDA module is of dtrain " + std::string(head.version) + " (interface " +
                     std::to_string(head.interface) + "), this program of " DTRAIN_VERSION " (interface " +
                     std::to_string(kModuleInterface) + "); build and install both together");
  }
  return find(handle.get(), name);
}

bool emulation_asked_for() noexcept { return is_set(kEmulatedVariable); }

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

const WorkPart& module_work() { return device_part().work(); }

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
  const DevicePart& part = device_part();
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
