// Stands in for cuDNN in builds without it: the direct kernels do everything.
#include "runtime/device/cuda/convolution/convolutions.h"

namespace dtrain::cuda {

class Convolutions::Plans {};

Convolutions::Convolutions(const Context&) {}
Convolutions::~Convolutions() = default;

bool Convolutions::forward(const ConvKey&, const View&, const View&, const View&, Activation, const View&,
                           bool&) {
  return false;
}
bool Convolutions::backward_input(const ConvKey&, const View&, const View&, const View&) { return false; }
bool Convolutions::add_backward_input(const ConvKey&, const View&, const View&, const View&) { return false; }
bool Convolutions::backward_weight(const ConvKey&, const View&, const View&, const View&) { return false; }

}  // namespace dtrain::cuda
