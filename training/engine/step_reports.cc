#include "training/engine/step_reports.h"

#include <fmt/format.h>

#include <array>
#include <thread>

#include "runtime/base/error.h"

namespace dtrain {
namespace {

enum Element : int { kLoss, kStop, kSave, kCorrupted, kScale, kSkipped, kOverflow, kElements };
constexpr std::chrono::microseconds kPollEvery{20};

}  // namespace

StepReports::StepReports(Communicator& communicator, int shares, const std::shared_ptr<Device>& device,
                         std::vector<std::string> phases)
    : communicator_(communicator),
      device_(device),
      shares_(shares),
      phases_(std::move(phases)),
      values_(Tensor::zeros({kElements + static_cast<std::int64_t>(phases_.size())}, device, DType::f64)) {}

StepReports::~StepReports() {
  if (posted_.empty()) return;
  try {
    device_->compute_stream().synchronize();  // what was kept is still being read
  } catch (const std::exception&) {
    // Lost is finished.
  }
}

View StepReports::element(int index) const {
  return {values_.view().as<double>() + phases_.size() + index, DType::f64, {1}, {1}};
}

View StepReports::loss_of_phase(std::size_t phase) const {
  return {values_.view().as<double>() + phase, DType::f64, {1}, {1}};
}

// A few slots go round: to allocate pinned memory, and to free it above all, waits for the device.
std::shared_ptr<double> StepReports::pinned() {
  for (const auto& slot : slots_) {
    if (slot.use_count() == 1) return slot;
  }
  return slots_.emplace_back(
      static_cast<double*>(device_->allocate_pinned(bytes())),
      [device = device_, bytes = bytes()](double* memory) { device->deallocate_pinned(memory, bytes); });
}

void StepReports::begin() {
  device_->kernels().fill(element(kLoss), 0.0);
  for (std::size_t i = 0; i < phases_.size(); ++i) device_->kernels().fill(loss_of_phase(i), 0.0);
}

void StepReports::add(const Tensor& loss, double weight, std::size_t phase) {
  const Tensor term = Tensor::empty({1}, device_, DType::f64);
  const View in{loss.view().data, loss.dtype(), {1}, {1}};
  device_->kernels().affine(in, weight, 0.0, term.view());
  device_->kernels().accumulate(term.view(), 1.0, element(kLoss));
  if (!phases_.empty()) device_->kernels().accumulate(term.view(), 1.0, loss_of_phase(phase));
}

void StepReports::send(bool stop, bool save, const UpdateGuard& guard) {
  Kernels& kernels = device_->kernels();
  const Tensor shares = Tensor::full({1}, shares_, device_, DType::f64);
  kernels.binary(BinaryOp::div, element(kLoss), shares.view(), element(kLoss));
  for (std::size_t i = 0; i < phases_.size(); ++i)
    kernels.binary(BinaryOp::div, loss_of_phase(i), shares.view(), loss_of_phase(i));
  kernels.fill(element(kStop), stop ? 1.0 : 0.0);
  kernels.fill(element(kSave), save ? 1.0 : 0.0);
  kernels.copy(guard.corrupted().view(), element(kCorrupted));
  work_ = communicator_.all_reduce({.data = values_.view().data,
                                    .count = phases_.size() + static_cast<std::size_t>(kScale),
                                    .dtype = DType::f64,
                                    .device = device_.get()},
                                   ReduceOp::sum, "loss");
}

std::pair<double, bool> StepReports::sums(const Deadline& deadline) {
  work_->wait_on_host(deadline);
  std::array<double, kScale> values{};
  device_->copy(values.data(), element(0).data, sizeof values, CopyKind::device_to_host,
                device_->compute_stream());
  device_->compute_stream().synchronize();
  return {values[kLoss], values[kCorrupted] != 0};
}

void StepReports::post(const StepReport& report, const UpdateGuard& guard, const GradScaler* scaler,
                       std::vector<std::shared_ptr<void>> kept) {
  Posted posted{report, std::move(work_), pinned(), device_->make_event(), std::move(kept)};
  posted.work->wait(Deadline::never());
  if (scaler != nullptr) {
    scaler->report({element(kScale).data, DType::f64, {2}, {1}});
  } else {
    device_->kernels().fill(element(kScale), 0.0);
    device_->kernels().fill(element(kSkipped), -1.0);
  }
  device_->kernels().copy(guard.found().view(), element(kOverflow));
  device_->copy(posted.values.get(), values_.view().data, bytes(), CopyKind::device_to_host,
                device_->compute_stream());
  posted.arrived->record(device_->compute_stream());
  posted_.push_back(std::move(posted));
}

bool StepReports::ready() { return !posted_.empty() && posted_.front().arrived->done(); }

StepReport StepReports::take(const Deadline& deadline) {
  Posted& oldest = posted_.front();
  oldest.work->wait_on_host(deadline);  // knows of lost peers; after it only this GPU's own work is left
  while (!oldest.arrived->done()) {
    if (deadline.expired()) {
      throw Error(fmt::format("step {}: {} did not finish it before the deadline of --collective-timeout",
                              oldest.report.record.step, device_->name()));
    }
    std::this_thread::sleep_for(kPollEvery);
  }
  oldest.work->wait(deadline);  // a group that died meanwhile has left nothing to read
  const double* const values = oldest.values.get() + phases_.size();
  StepReport report = oldest.report;
  report.record.loss = values[kLoss];
  for (std::size_t i = 0; i < phases_.size(); ++i)
    report.record.losses.emplace_back(phases_[i], oldest.values.get()[i]);
  report.record.loss_scale = values[kScale];
  report.record.skipped_steps = static_cast<std::int64_t>(values[kSkipped]);
  report.stop = values[kStop] > 0;
  report.save_asked_elsewhere = values[kSave] > 0 && !report.save;
  report.save = values[kSave] > 0;
  report.overflowed = values[kOverflow] != 0;
  report.corrupted = values[kCorrupted] != 0;
  posted_.pop_front();
  return report;
}

}  // namespace dtrain
