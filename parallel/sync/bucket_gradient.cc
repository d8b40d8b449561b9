#include "parallel/sync/bucket_gradient.h"

#include "runtime/autograd/grad_mode.h"
#include "runtime/device/between.h"

namespace dtrain {

BucketGradient::BucketGradient(const Tensor& parameter, const std::shared_ptr<Device>& home)
    : parameter_(parameter), home_(home), away_(!share_memory(parameter.device(), *home)) {
  if (!away_) return;
  gradient_ = Tensor::zeros(parameter_.shape(), parameter_.shared_device(), parameter_.dtype());
  parameter_.set_grad_storage(gradient_);
}

// The gradient has the strides of a dense tensor of the parameter's shape in the parameter's own memory
// order.
void BucketGradient::bind_view(const View& slot, const std::shared_ptr<void>& owner) {
  if (placed_.defined() && placed_.view().data == slot.data) return;
  View view = slot;
  view.shape = parameter_.shape();
  view.strides = away_ || parameter_.is_contiguous() ? contiguous_strides(view.shape) : parameter_.strides();
  placed_ = Tensor::borrow(view, away_ ? home_ : parameter_.shared_device(), owner);
  if (away_) return;
  gradient_ = placed_;
  parameter_.set_grad_storage(gradient_);
}

void BucketGradient::copy_in() {
  if (!away_) return;
  const NoGrad no_grad;
  placed_.copy_across(gradient_);
}

void BucketGradient::copy_out() {
  if (away_) {
    const NoGrad no_grad;
    gradient_.copy_across(placed_);
  }
  gradient_.mark_modified();
}

void BucketGradient::assign() { parameter_.set_grad(gradient_); }

}  // namespace dtrain
