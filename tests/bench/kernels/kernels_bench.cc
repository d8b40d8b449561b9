// Each kernel of a LeNet training step alone, at its shapes, then the whole step made of them.
// Run: OMP_NUM_THREADS=1 build/release/bin/kernels_bench [--benchmark_filter=…]
#include <benchmark/benchmark.h>

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/random.h"
#include "runtime/device/device.h"

namespace dtrain {
namespace {

constexpr std::int64_t kBatch = 128;

/// Owns a tensor's memory on one device for the length of a benchmark.
class Bench {
 public:
  Bench() : device_(make_device("cpu")) {}
  ~Bench() {
    for (const auto& [memory, bytes] : memory_) device_->deallocate(memory, bytes);
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  Kernels& kernels() { return device_->kernels(); }
  Device& device() { return *device_; }

  View tensor(const Dims& shape, DType dtype = DType::f32) {
    const std::size_t bytes = static_cast<std::size_t>(shape.product()) * size_of(dtype);
    View view{device_->allocate(bytes), dtype, shape, contiguous_strides(shape)};
    memory_.emplace_back(view.data, bytes);
    if (dtype == DType::f32) {
      generator_.uniform(std::span(view.as<float>(), static_cast<std::size_t>(shape.product())), -0.1F, 0.1F);
    } else {
      kernels().fill(view, 1);
    }
    return view;
  }
  View image(const Dims& shape, DType dtype = DType::f32) {
    View view = tensor(shape, dtype);
    view.strides = channels_last_strides(shape);
    return view;
  }

 private:
  std::shared_ptr<Device> device_;
  Generator generator_{1};
  std::vector<std::pair<void*, std::size_t>> memory_;
};

void set_flops(benchmark::State& state, double flops) {
  state.counters["FLOP/s"] = benchmark::Counter(flops, benchmark::Counter::kIsIterationInvariantRate);
}

void set_bytes(benchmark::State& state, double bytes) {
  state.counters["B/s"] = benchmark::Counter(bytes, benchmark::Counter::kIsIterationInvariantRate);
}

/// A convolution of LeNet: input [128, c, size, size], weight [o, c, k, k].
struct Conv {
  std::int64_t c, size, o, k;
  std::int64_t out() const { return size - k + 1; }
  double flops() const { return 2.0 * static_cast<double>(kBatch * o * out() * out() * c * k * k); }
};

constexpr Conv kConv1{1, 28, 20, 3};
constexpr Conv kConv2{20, 13, 50, 5};

struct ConvTensors {
  ConvTensors(Bench& bench, const Conv& conv)
      : input(bench.image({kBatch, conv.c, conv.size, conv.size})),
        weight(bench.tensor({conv.o, conv.c, conv.k, conv.k})),
        bias(bench.tensor({conv.o})),
        output(bench.image({kBatch, conv.o, conv.out(), conv.out()})) {}
  View input, weight, bias, output;
};

void conv_forward(benchmark::State& state, Conv conv) {
  Bench bench;
  const ConvTensors t(bench, conv);
  for (auto _ : state) bench.kernels().conv2d({}, t.input, t.weight, t.bias, Activation::relu, t.output);
  set_flops(state, conv.flops());
}
BENCHMARK_CAPTURE(conv_forward, conv1, kConv1);
BENCHMARK_CAPTURE(conv_forward, conv2, kConv2);

void conv_backward_input(benchmark::State& state, Conv conv) {
  Bench bench;
  const ConvTensors t(bench, conv);
  for (auto _ : state) bench.kernels().conv2d_backward_input({}, t.output, t.weight, t.input);
  set_flops(state, conv.flops());
}
BENCHMARK_CAPTURE(conv_backward_input, conv2, kConv2);

void conv_backward_weight(benchmark::State& state, Conv conv) {
  Bench bench;
  const ConvTensors t(bench, conv);
  for (auto _ : state) bench.kernels().conv2d_backward_weight({}, t.input, t.output, t.weight, t.bias);
  set_flops(state, conv.flops());
}
BENCHMARK_CAPTURE(conv_backward_weight, conv1, kConv1);
BENCHMARK_CAPTURE(conv_backward_weight, conv2, kConv2);

View transposed(View view) {
  std::swap(view.shape[1], view.shape[2]);
  std::swap(view.strides[1], view.strides[2]);
  return view;
}

void linear(benchmark::State& state, std::int64_t in, std::int64_t out) {
  Bench bench;
  const View x = bench.tensor({1, kBatch, in}), w = bench.tensor({1, out, in}), b = bench.tensor({out}),
             y = bench.tensor({1, kBatch, out});
  for (auto _ : state) bench.kernels().matmul(x, transposed(w), b, Activation::relu, false, y);
  set_flops(state, 2.0 * static_cast<double>(kBatch * in * out));
}
BENCHMARK_CAPTURE(linear, fc1, 800, 128);
BENCHMARK_CAPTURE(linear, fc2, 128, 10);

void linear_backward_weight(benchmark::State& state, std::int64_t in, std::int64_t out) {
  Bench bench;
  const View x = bench.tensor({1, kBatch, in}), w = bench.tensor({1, out, in}),
             y = bench.tensor({1, kBatch, out});
  for (auto _ : state) bench.kernels().matmul(transposed(y), x, View{}, Activation::none, false, w);
  set_flops(state, 2.0 * static_cast<double>(kBatch * in * out));
}
BENCHMARK_CAPTURE(linear_backward_weight, fc1, 800, 128);

void pool(benchmark::State& state, PoolKind kind, std::int64_t c, std::int64_t size) {
  Bench bench;
  const View in = bench.image({kBatch, c, size, size}), out = bench.image({kBatch, c, size / 2, size / 2});
  View indices = bench.image(out.shape, DType::u8);
  if (kind == PoolKind::avg) indices.data = nullptr;
  for (auto _ : state) bench.kernels().pool2d({.kind = kind}, in, out, indices);
  set_bytes(state, 4.0 * static_cast<double>(in.numel() + out.numel()));
}
BENCHMARK_CAPTURE(pool, avg1, PoolKind::avg, 20, 26);
BENCHMARK_CAPTURE(pool, avg2, PoolKind::avg, 50, 9);
BENCHMARK_CAPTURE(pool, max1, PoolKind::max, 20, 26);

void pool_backward(benchmark::State& state, PoolKind kind, std::int64_t c, std::int64_t size) {
  Bench bench;
  const View in = bench.image({kBatch, c, size, size}), out = bench.image({kBatch, c, size / 2, size / 2});
  View indices = bench.image(out.shape, DType::u8);
  if (kind == PoolKind::avg) indices.data = nullptr;
  for (auto _ : state) bench.kernels().pool2d_backward({.kind = kind}, out, indices, in);
  set_bytes(state, 4.0 * static_cast<double>(in.numel() + out.numel()));
}
BENCHMARK_CAPTURE(pool_backward, avg1, PoolKind::avg, 20, 26);
BENCHMARK_CAPTURE(pool_backward, max1, PoolKind::max, 20, 26);

void relu_grad(benchmark::State& state) {
  Bench bench;
  const Dims shape = {kBatch, 20, 26, 26};
  const View a = bench.image(shape), b = bench.image(shape), out = bench.image(shape);
  for (auto _ : state) bench.kernels().binary(BinaryOp::relu_grad, a, b, out);
  set_bytes(state, 12.0 * static_cast<double>(a.numel()));
}
BENCHMARK(relu_grad);

void flatten(benchmark::State& state) {
  Bench bench;
  const Dims shape = {kBatch, 50, 4, 4};
  const View in = bench.image(shape), out = bench.tensor(shape);
  for (auto _ : state) bench.kernels().copy(in, out);
  set_bytes(state, 8.0 * static_cast<double>(in.numel()));
}
BENCHMARK(flatten);

void bias_gradient(benchmark::State& state) {
  Bench bench;
  const View in = bench.tensor({kBatch, 128}), out = bench.tensor({1, 128});
  for (auto _ : state) bench.kernels().reduce(Reduction::sum, in, out);
  set_bytes(state, 4.0 * static_cast<double>(in.numel()));
}
BENCHMARK(bias_gradient);

void cross_entropy(benchmark::State& state) {
  Bench bench;
  const View logits = bench.tensor({kBatch, 10}), target = bench.tensor({kBatch}, DType::i64),
             log_probs = bench.tensor({kBatch, 10}), losses = bench.tensor({kBatch});
  for (auto _ : state) {
    bench.kernels().cross_entropy(logits, target, std::nullopt, log_probs, losses);
    bench.kernels().cross_entropy_backward(log_probs, target, std::nullopt, losses, logits);
  }
}
BENCHMARK(cross_entropy);

/// A step of LeNet's parameters, whose elements are read and written `accesses` times.
void optimizer(benchmark::State& state, DType dtype, int accesses, auto run) {
  Bench bench;
  std::vector<OptimizerSlot> slots;
  std::int64_t elements = 0;
  for (const Dims& shape : std::initializer_list<Dims>{
           {20, 1, 3, 3}, {20}, {50, 20, 5, 5}, {50}, {128, 800}, {128}, {10, 128}, {10}}) {
    const auto array = [&] { return bench.tensor(shape, dtype); };
    slots.push_back({array(), array(), array(), array(), array()});
    bench.kernels().fill(slots.back().variance, 1);
    elements += shape.product();
  }
  for (auto _ : state) run(bench.kernels(), slots);
  set_bytes(state, static_cast<double>(static_cast<std::int64_t>(size_of(dtype)) * accesses * elements));
}

void sgd(benchmark::State& state, DType dtype, double momentum) {
  optimizer(state, dtype, momentum == 0 ? 3 : 5,
            [&](Kernels& k, const auto& slots) { k.sgd(slots, {.lr = 1e-6, .momentum = momentum}); });
}
BENCHMARK_CAPTURE(sgd, plain, DType::f32, 0.0);
BENCHMARK_CAPTURE(sgd, momentum, DType::f32, 0.9);
BENCHMARK_CAPTURE(sgd, momentum_bf16, DType::bf16, 0.9);

void adamw(benchmark::State& state, DType dtype) {
  optimizer(state, dtype, 7, [](Kernels& k, const auto& slots) { k.adamw(slots, {.lr = 1e-6}); });
}
BENCHMARK_CAPTURE(adamw, f32, DType::f32);
BENCHMARK_CAPTURE(adamw, bf16, DType::bf16);

void rmsprop(benchmark::State& state, bool centered) {
  optimizer(state, DType::f32, centered ? 7 : 5,
            [&](Kernels& k, const auto& slots) { k.rmsprop(slots, {.lr = 1e-6, .centered = centered}); });
}
BENCHMARK_CAPTURE(rmsprop, plain, false);
BENCHMARK_CAPTURE(rmsprop, centered, true);

void adagrad(benchmark::State& state) {
  optimizer(state, DType::f32, 5, [](Kernels& k, const auto& slots) { k.adagrad(slots, {.lr = 1e-6}); });
}
BENCHMARK(adagrad);

/// LeNet's parameters, activations and gradients, and one training step on them in the fewest kernels.
class LeNet {
 public:
  explicit LeNet(Bench& bench) : k_(bench.kernels()), bench_(bench) {
    bench.kernels().fill(target_, 3);
    for (const auto& [parameter, gradient] : {std::pair{w1_, dw1_},
                                              {b1_, db1_},
                                              {w2_, dw2_},
                                              {b2_, db2_},
                                              {w3_, dw3_},
                                              {b3_, db3_},
                                              {w4_, dw4_},
                                              {b4_, db4_}}) {
      slots_.push_back({parameter, gradient, {}, {}});
    }
  }

  void step() {
    convolutions();
    classifier();
    classifier_backward();
    convolutions_backward();
    k_.sgd(slots_, {.lr = 1e-6});
  }
  void convolutions() {
    k_.conv2d_relu_pool2d({}, kPool, x_, w1_, b1_, h1_, m1_);
    k_.conv2d_relu_pool2d({}, kPool, h1_, w2_, b2_, h2_, m2_);
  }
  void classifier() {
    k_.copy(h2_, flat4_);
    k_.matmul(flat_, transposed(batch(w3_)), b3_, Activation::relu, false, batch(h3_));
    k_.matmul(batch(h3_), transposed(batch(w4_)), b4_, Activation::none, false, batch(logits_));
    k_.cross_entropy(logits_, target_, std::nullopt, log_probs_, losses_);
  }
  void classifier_backward() {
    k_.cross_entropy_backward(log_probs_, target_, std::nullopt, losses_, dlogits_);
    k_.matmul(transposed(batch(dlogits_)), batch(h3_), View{}, Activation::none, false, batch(dw4_));
    k_.reduce(Reduction::sum, dlogits_, batch(db4_));
    k_.matmul(batch(dlogits_), batch(w4_), View{}, Activation::none, false, batch(dh3_));
    k_.binary(BinaryOp::relu_grad, dh3_, h3_, dh3_);
    k_.matmul(transposed(batch(dh3_)), flat_, View{}, Activation::none, false, batch(dw3_));
    k_.reduce(Reduction::sum, dh3_, batch(db3_));
    k_.matmul(batch(dh3_), batch(w3_), View{}, Activation::none, false, dflat_);
    k_.copy(dflat4_, dh2_);
  }
  void convolutions_backward() {
    k_.conv2d_relu_pool2d_backward({}, kPool, h1_, w2_, dh2_, m2_, dh1_, dw2_, db2_);
    k_.conv2d_relu_pool2d_backward({}, kPool, x_, w1_, dh1_, m1_, View{}, dw1_, db1_);
  }

 private:
  static constexpr Pool2dGeometry kPool{.kind = PoolKind::avg};
  static View batch(View view) {
    Dims shape = {1}, strides = {view.numel()};
    for (int i = 0; i < view.rank(); ++i) {
      shape.push_back(view.shape[i]);
      strides.push_back(view.strides[i]);
    }
    view.shape = shape;
    view.strides = strides;
    return view;
  }
  static View reshaped(View view, const Dims& shape) {
    view.shape = shape;
    view.strides = contiguous_strides(shape);
    return view;
  }

  Kernels& k_;
  Bench& bench_;
  View x_ = bench_.image({kBatch, 1, 28, 28}), target_ = bench_.tensor({kBatch}, DType::i64);
  View w1_ = bench_.tensor({20, 1, 3, 3}), b1_ = bench_.tensor({20}), w2_ = bench_.tensor({50, 20, 5, 5}),
       b2_ = bench_.tensor({50}), w3_ = bench_.tensor({128, 800}), b3_ = bench_.tensor({128}),
       w4_ = bench_.tensor({10, 128}), b4_ = bench_.tensor({10});
  View dw1_ = bench_.tensor(w1_.shape), db1_ = bench_.tensor({20}), dw2_ = bench_.tensor(w2_.shape),
       db2_ = bench_.tensor({50}), dw3_ = bench_.tensor(w3_.shape), db3_ = bench_.tensor({128}),
       dw4_ = bench_.tensor(w4_.shape), db4_ = bench_.tensor({10});
  View h1_ = bench_.image({kBatch, 20, 13, 13}), dh1_ = bench_.image(h1_.shape),
       m1_ = bench_.image(h1_.shape, DType::u8);
  View h2_ = bench_.image({kBatch, 50, 4, 4}), dh2_ = bench_.image(h2_.shape),
       m2_ = bench_.image(h2_.shape, DType::u8);
  View flat_ = bench_.tensor({1, kBatch, 800}), dflat_ = bench_.tensor({1, kBatch, 800});
  View flat4_ = reshaped(flat_, h2_.shape), dflat4_ = reshaped(dflat_, h2_.shape);
  View h3_ = bench_.tensor({kBatch, 128}), dh3_ = bench_.tensor({kBatch, 128});
  View logits_ = bench_.tensor({kBatch, 10}), dlogits_ = bench_.tensor({kBatch, 10}),
       log_probs_ = bench_.tensor({kBatch, 10}), losses_ = bench_.tensor({kBatch});
  std::vector<OptimizerSlot> slots_;
};

void lenet(benchmark::State& state, void (LeNet::*part)()) {
  Bench bench;
  LeNet net(bench);
  net.step();
  for (auto _ : state) (net.*part)();
  state.counters["images/s"] =
      benchmark::Counter(static_cast<double>(kBatch), benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK_CAPTURE(lenet, step, &LeNet::step)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(lenet, convolutions, &LeNet::convolutions)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(lenet, convolutions_backward, &LeNet::convolutions_backward)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(lenet, classifier, &LeNet::classifier)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(lenet, classifier_backward, &LeNet::classifier_backward)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace dtrain
