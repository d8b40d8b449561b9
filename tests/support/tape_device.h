// A device with graphs for machines without a GPU: the CPU's kernels, which while record() lasts go to a tape
// instead of running, with the numbers they were given, as CUDA would keep them. Memory that was given back
// is overwritten, and a wait while recording is an error, so that what would be wrong on a GPU is wrong here.
#pragma once

#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/device/device.h"

namespace dtrain::test {

/// What was recorded.
struct Tape {
  bool recording = false;
  std::vector<std::function<void()>> work;

  void run(std::function<void()> call) {
    if (!recording) return call();
    work.push_back(std::move(call));
  }
  void refuse_wait() const {
    if (recording) throw DeviceError("the host waits for the device while a graph is recorded", 1);
  }
};

class TapeKernels final : public Kernels {
 public:
  TapeKernels(Kernels& inner, Tape& tape) : inner_(inner), tape_(tape) {}

  void fill(const View& out, double value) override {
    tape_.run([=, this] { inner_.fill(out, value); });
  }
  void copy(const View& in, const View& out) override {
    tape_.run([=, this] { inner_.copy(in, out); });
  }
  void affine(const View& in, double scale, double shift, const View& out) override {
    tape_.run([=, this] { inner_.affine(in, scale, shift, out); });
  }
  void unary(UnaryOp op, const View& in, const View& out) override {
    tape_.run([=, this] { inner_.unary(op, in, out); });
  }
  void binary(BinaryOp op, const View& a, const View& b, const View& out) override {
    tape_.run([=, this] { inner_.binary(op, a, b, out); });
  }
  void where(const View& condition, const View& a, const View& b, const View& out) override {
    tape_.run([=, this] { inner_.where(condition, a, b, out); });
  }
  void accumulate(const View& in, double scale, const View& out) override {
    tape_.run([=, this] { inner_.accumulate(in, scale, out); });
  }
  void reduce(Reduction op, const View& in, const View& out) override {
    tape_.run([=, this] { inner_.reduce(op, in, out); });
  }
  void argmax(const View& in, const View& out) override {
    tape_.run([=, this] { inner_.argmax(in, out); });
  }
  void index_select(const View& in, const View& index, const View& out) override {
    tape_.run([=, this] { inner_.index_select(in, index, out); });
  }
  void index_add(const View& in, const View& index, const View& out) override {
    tape_.run([=, this] { inner_.index_add(in, index, out); });
  }
  void matmul(const View& a, const View& b, const View& bias, Activation activation, bool accumulate,
              const View& out) override {
    tape_.run([=, this] { inner_.matmul(a, b, bias, activation, accumulate, out); });
  }
  void conv2d(const Conv2dGeometry& geometry, const View& input, const View& weight, const View& bias,
              Activation activation, const View& output) override {
    tape_.run([=, this] { inner_.conv2d(geometry, input, weight, bias, activation, output); });
  }
  void conv2d_backward_input(const Conv2dGeometry& geometry, const View& grad_output, const View& weight,
                             const View& grad_input) override {
    tape_.run([=, this] { inner_.conv2d_backward_input(geometry, grad_output, weight, grad_input); });
  }
  void conv2d_backward_weight(const Conv2dGeometry& geometry, const View& input, const View& grad_output,
                              const View& grad_weight, const View& grad_bias) override {
    tape_.run(
        [=, this] { inner_.conv2d_backward_weight(geometry, input, grad_output, grad_weight, grad_bias); });
  }
  void pool2d(const Pool2dGeometry& geometry, const View& input, const View& output,
              const View& indices) override {
    tape_.run([=, this] { inner_.pool2d(geometry, input, output, indices); });
  }
  void pool2d_backward(const Pool2dGeometry& geometry, const View& grad_output, const View& indices,
                       const View& grad_input) override {
    tape_.run([=, this] { inner_.pool2d_backward(geometry, grad_output, indices, grad_input); });
  }
  void conv2d_relu_pool2d(const Conv2dGeometry& conv, const Pool2dGeometry& pool, const View& input,
                          const View& weight, const View& bias, const View& output,
                          const View& mask) override {
    tape_.run([=, this] { inner_.conv2d_relu_pool2d(conv, pool, input, weight, bias, output, mask); });
  }
  void conv2d_relu_pool2d_backward(const Conv2dGeometry& conv, const Pool2dGeometry& pool, const View& input,
                                   const View& weight, const View& grad_output, const View& mask,
                                   const View& grad_input, const View& grad_weight,
                                   const View& grad_bias) override {
    tape_.run([=, this] {
      inner_.conv2d_relu_pool2d_backward(conv, pool, input, weight, grad_output, mask, grad_input,
                                         grad_weight, grad_bias);
    });
  }
  void batch_norm(const BatchNormRule& rule, const BatchNormChannels& channels, const View& input,
                  const View& residual, const View& output) override {
    tape_.run([=, this] { inner_.batch_norm(rule, channels, input, residual, output); });
  }
  void batch_norm_inference(const BatchNormRule& rule, const BatchNormChannels& channels, const View& input,
                            const View& residual, const View& output) override {
    tape_.run([=, this] { inner_.batch_norm_inference(rule, channels, input, residual, output); });
  }
  void batch_norm_backward(const BatchNormRule& rule, const BatchNormChannels& channels, const View& input,
                           const View& output, const View& grad_output, const View& grad_input,
                           const View& grad_residual, const View& grad_weight,
                           const View& grad_bias) override {
    tape_.run([=, this] {
      inner_.batch_norm_backward(rule, channels, input, output, grad_output, grad_input, grad_residual,
                                 grad_weight, grad_bias);
    });
  }
  void batch_norm_moments(const View& input, const View& moments) override {
    tape_.run([=, this] { inner_.batch_norm_moments(input, moments); });
  }
  void batch_norm_combine(const BatchNormRule& rule, const BatchNormChannels& channels,
                          const View& parts) override {
    tape_.run([=, this] { inner_.batch_norm_combine(rule, channels, parts); });
  }
  void batch_norm_apply(const BatchNormRule& rule, const BatchNormChannels& channels, const View& input,
                        const View& residual, const View& output) override {
    tape_.run([=, this] { inner_.batch_norm_apply(rule, channels, input, residual, output); });
  }
  void batch_norm_grad_sums(const BatchNormChannels& channels, const View& input, const View& output,
                            const View& grad_output, const View& grad_residual, const View& grad_weight,
                            const View& grad_bias, const View& sums) override {
    tape_.run([=, this] {
      inner_.batch_norm_grad_sums(channels, input, output, grad_output, grad_residual, grad_weight, grad_bias,
                                  sums);
    });
  }
  void batch_norm_grad_input(const BatchNormChannels& channels, const View& sums, const View& input,
                             const View& output, const View& grad_output, const View& grad_input) override {
    tape_.run(
        [=, this] { inner_.batch_norm_grad_input(channels, sums, input, output, grad_output, grad_input); });
  }
  void log_softmax(const View& in, const View& out) override {
    tape_.run([=, this] { inner_.log_softmax(in, out); });
  }
  void cross_entropy(const View& logits, const View& target, const View& log_probs,
                     const View& losses) override {
    tape_.run([=, this] { inner_.cross_entropy(logits, target, log_probs, losses); });
  }
  void cross_entropy_backward(const View& log_probs, const View& target, const View& grad_losses,
                              const View& grad_logits) override {
    tape_.run([=, this] { inner_.cross_entropy_backward(log_probs, target, grad_losses, grad_logits); });
  }
  void update_loss_scale(const LossScaleRule& rule, const LossScaleState& state) override {
    tape_.run([=, this] { inner_.update_loss_scale(rule, state); });
  }
  void unscale(std::span<const View> gradients, const View& scale, const View& found) override {
    tape_.run([=, this, kept = std::vector<View>(gradients.begin(), gradients.end())] {
      inner_.unscale(kept, scale, found);
    });
  }
  void sgd(std::span<const OptimizerSlot> slots, const SgdStep& step) override {
    tape_.run(
        [=, this, kept = std::vector<OptimizerSlot>(slots.begin(), slots.end())] { inner_.sgd(kept, step); });
  }
  void adamw(std::span<const OptimizerSlot> slots, const AdamWStep& step) override {
    tape_.run([=, this, kept = std::vector<OptimizerSlot>(slots.begin(), slots.end())] {
      inner_.adamw(kept, step);
    });
  }

 private:
  Kernels& inner_;
  Tape& tape_;
};

class TapeStream final : public Stream {
 public:
  explicit TapeStream(Tape& tape) : tape_(tape) {}
  void synchronize() override { tape_.refuse_wait(); }

 private:
  Tape& tape_;
};

class TapeEvent final : public Event {
 public:
  explicit TapeEvent(Tape& tape) : tape_(tape) {}
  void record(Stream&) override {}
  void make_wait(Stream&) override {}
  bool done() override {
    tape_.refuse_wait();
    return true;
  }

 private:
  Tape& tape_;
};

/// Says that it is a GPU, so that what is written for GPUs runs.
class TapeDevice final : public Device {
 public:
  ~TapeDevice() override {
    for (const auto& [memory, bytes] : of_graphs_) inner_->deallocate(memory, bytes);
  }

  DeviceType type() const noexcept override { return DeviceType::cuda; }
  int index() const noexcept override { return 0; }
  std::string name() const override { return "tape"; }

  void* allocate(std::size_t bytes) override {
    void* const memory = inner_->allocate(bytes);
    if (tape_.recording) of_graphs_[memory] = bytes;
    return memory;
  }
  void deallocate(void* memory, std::size_t bytes) noexcept override {
    if (memory == nullptr || of_graphs_.contains(memory)) return;
    if (tape_.recording) {
      of_graphs_[memory] = bytes;
      return;
    }
    std::memset(memory, 0xff, bytes);
    inner_->deallocate(memory, bytes);
  }
  void* allocate_pinned(std::size_t bytes) override { return inner_->allocate_pinned(bytes); }
  void deallocate_pinned(void* memory, std::size_t bytes) noexcept override {
    if (memory != nullptr) std::memset(memory, 0xff, bytes);
    inner_->deallocate_pinned(memory, bytes);
  }
  void copy(void* to, const void* from, std::size_t bytes, CopyKind, Stream&) override {
    tape_.run([=] {
      if (bytes != 0) std::memcpy(to, from, bytes);
    });
  }
  Stream& compute_stream() noexcept override { return stream_; }
  std::unique_ptr<Stream> make_stream() override { return std::make_unique<TapeStream>(tape_); }
  std::unique_ptr<Event> make_event() override { return std::make_unique<TapeEvent>(tape_); }
  Kernels& kernels() noexcept override { return kernels_; }

  bool has_graphs() const noexcept override { return true; }
  std::unique_ptr<Graph> record(const std::function<void()>& work) override {
    tape_.work.clear();
    tape_.recording = true;
    try {
      work();
    } catch (...) {
      tape_.recording = false;
      throw;
    }
    tape_.recording = false;
    ++graphs;
    return std::make_unique<TapeGraph>(*this, std::move(tape_.work));
  }

  std::size_t allocated_bytes() const noexcept override { return inner_->allocated_bytes(); }
  std::size_t peak_allocated_bytes() const noexcept override { return inner_->peak_allocated_bytes(); }

  int graphs = 0, launches = 0;  ///< recorded; launched

 private:
  class TapeGraph final : public Graph {
   public:
    TapeGraph(TapeDevice& device, std::vector<std::function<void()>> work)
        : device_(device), work_(std::move(work)) {}
    void launch(Stream&) override {
      ++device_.launches;
      for (const auto& call : work_) call();
    }

   private:
    TapeDevice& device_;
    std::vector<std::function<void()>> work_;
  };

  std::shared_ptr<Device> inner_ = make_device("cpu");
  Tape tape_;
  TapeKernels kernels_{inner_->kernels(), tape_};
  TapeStream stream_{tape_};
  std::map<void*, std::size_t> of_graphs_;  ///< memory graphs may use, kept as long as the device
};

}  // namespace dtrain::test
