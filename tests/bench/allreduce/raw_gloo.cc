// Gloo on its own, as its documentation uses it: a file store, a full mesh, the ring.
#include <gloo/allreduce.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include "tests/bench/allreduce/sides.h"

namespace dtrain::bench {
namespace {

class RawGloo final : public Side {
 public:
  RawGloo(int rank, int size, const std::string& folder, const std::string& address)
      : context_(std::make_shared<gloo::rendezvous::Context>(rank, size)) {
    gloo::rendezvous::FileStore store(folder);
    auto device = gloo::transport::tcp::CreateDevice(address.c_str());
    context_->connectFullMesh(store, device);
  }
  void sum(float* data, std::size_t count) override {
    gloo::AllreduceOptions options(context_);
    options.setOutput(data, count);
    options.setReduceFunction(
        static_cast<void (*)(void*, const void*, const void*, std::size_t)>(&gloo::sum<float>));
    gloo::allreduce(options);
  }

 private:
  std::shared_ptr<gloo::rendezvous::Context> context_;
};

}  // namespace

std::unique_ptr<Side> make_raw_gloo(int rank, int size, const std::string& folder,
                                    const std::string& address) {
  return std::make_unique<RawGloo>(rank, size, folder, address);
}

}  // namespace dtrain::bench
