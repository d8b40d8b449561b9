#include "runtime/device/cuda/nvtx_ranges.h"

#include <nvtx3/nvToolsExt.h>

#include <algorithm>
#include <array>

namespace dtrain::cuda {
namespace {

class NvtxRanges final : public SpanListener {
 public:
  void begin(std::string_view name) noexcept override {
    std::array<char, 128> text{};  // ended by a zero; a longer name is cut
    std::copy_n(name.data(), std::min(name.size(), text.size() - 1), text.data());
    nvtxEventAttributes_t event{};
    event.version = NVTX_VERSION;
    event.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    event.messageType = NVTX_MESSAGE_TYPE_ASCII;
    event.message.ascii = text.data();
    nvtxDomainRangePushEx(domain_, &event);
  }
  void end() noexcept override { nvtxDomainRangePop(domain_); }

 private:
  nvtxDomainHandle_t domain_ = nvtxDomainCreateA("dtrain");
};

}  // namespace

SpanListener& nvtx_ranges() {
  static NvtxRanges ranges;
  return ranges;
}

}  // namespace dtrain::cuda
