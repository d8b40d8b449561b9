// Uses the installed library as a training program would: a network, one step of SGD, and a group of one
// rank.
#include <cmath>
#include <cstdio>
#include <memory>

#include <dtrain/runtime/autograd/ops.h>
#include <dtrain/runtime/base/error.h>
#include <dtrain/runtime/base/random.h>
#include <dtrain/runtime/nn/layers.h>
#ifdef WITH_COLLECTIVES
#include <dtrain/collectives/factory.h>
#endif

namespace {

/// The loss of one batch after a small network; true when it and the first gradient are finite.
bool step_is_finite(const std::shared_ptr<dtrain::Device>& device) {
  dtrain::Generator generator(1);
  dtrain::Conv2d convolution(1, 4, 3, generator, device);
  dtrain::Linear head(4 * 6 * 6, 10, generator, device);
  const dtrain::Tensor images = dtrain::Tensor::rand({2, 1, 8, 8}, generator, device);
  const dtrain::Tensor labels = dtrain::Tensor::zeros({2}, device, dtrain::DType::i64);
  dtrain::Tensor loss = cross_entropy(head.forward(flatten(relu(convolution.forward(images)), 1)), labels);
  loss.backward();
  const dtrain::Tensor gradient = convolution.named_parameters().front().second.grad();
  std::printf("consumer: loss %.4f on %s\n", loss.item(), device->name().c_str());
  return std::isfinite(loss.item()) && std::isfinite(gradient.to_vector<float>().front());
}

}  // namespace

int main() {
  try {
    if (!step_is_finite(dtrain::make_device("cpu"))) return 1;
    try {
      dtrain::make_device("abacus");
      return 1;
    } catch (const dtrain::UsageError&) {  // errors cross the library's boundary as their own type
    }
#ifdef WITH_COLLECTIVES
    dtrain::NullLog log;
    if (dtrain::make_communicator(dtrain::Backend::self, {}, log)->size() != 1) return 1;
#endif
  } catch (const dtrain::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(error.exit_code());
  }
}
