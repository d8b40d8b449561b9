// Data parallelism by hand, as "Training on Multiple GPUs" of Dive into Deep Learning has it, line by line:
// LeNet from scratch on one device, then on two, with the same batches and the same numbers.
//
//     build/examples/lesson_multi_gpu [--devices N] [--epochs N] [--device cpu|cuda] [--data-dir DIR]
//
// Without --devices it trains on 1 and then on 2. The devices are cpu:0, cpu:1, … or GPUs; a CPU's share of
// cores is its own if OMP_NUM_THREADS says how many threads each may use.
#include <dtrain/dtrain.h>
#include <dtrain/runtime/autograd/fork.h>
#include <chrono>
#include <cstdio>

using namespace dtrain;

namespace {

using Devices = std::vector<std::shared_ptr<Device>>;

/// Weights are randn · scale, biases 0.
Tensors initial_params(double scale) {
  manual_seed(0);
  const auto weight = [&](const Dims& shape) { return randn(shape) * scale; };
  return {weight({20, 1, 3, 3}), zeros({20}),  weight({50, 20, 5, 5}), zeros({50}),
          weight({800, 128}),    zeros({128}), weight({128, 10}),      zeros({10})};
}

/// x [N, 1, 28, 28] → logits [N, 10]
Tensor lenet(const Tensor& x, const Tensors& params) {
  const Tensor h1 = avg_pool2d(relu(conv2d(x, params[0], params[1])), 2);
  const Tensor h2 = avg_pool2d(relu(conv2d(h1, params[2], params[3])), 2).flatten(1);
  const Tensor h3 = relu(matmul(h2, params[4]) + params[5]);
  return matmul(h3, params[6]) + params[7];
}

/// Copies of the parameters on `device`, each with a gradient.
Tensors get_params(const Tensors& params, const std::shared_ptr<Device>& device) {
  Tensors copies;
  for (const Tensor& param : params) copies.push_back(param.to(device).clone().set_requires_grad());
  return copies;
}

/// Adds all of `data`, one tensor a device, onto the first, and hands the sum back to the others.
void allreduce(Tensors& data) {
  for (std::size_t i = 1; i < data.size(); ++i) data[0] += data[i].to(data[0].shared_device());
  for (std::size_t i = 1; i < data.size(); ++i) data[i].copy_across(data[0]);
}

/// The rows of a batch on each device, as many on each to one.
Tensors split_batch(const Tensor& x, const Devices& devices) {
  const auto rows = x.size(0), count = static_cast<std::int64_t>(devices.size());
  Tensors shards;
  for (std::int64_t i = 0; i < count; ++i)
    shards.push_back(
        x[Slice(rows * i / count, rows * (i + 1) / count)].to(devices[static_cast<std::size_t>(i)]));
  return shards;
}

/// An update of every parameter by its gradient, the sum over `batch_size` samples.
void sgd(const Tensors& params, double lr, std::int64_t batch_size) {
  for (Tensor param : params) {
    param.add_in_place(param.grad(), -lr / static_cast<double>(batch_size));
    param.zero_grad();
  }
}

/// One step: losses and gradients on each device at the same time, gradients added up, and the same update
/// everywhere.
void train_batch(const Tensor& x, const Tensor& y, std::vector<Tensors>& device_params,
                 const Devices& devices, double lr) {
  const Tensors x_shards = split_batch(x, devices), y_shards = split_batch(y, devices);
  parallel_invoke(
      [&](int device) {
        const auto i = static_cast<std::size_t>(device);
        cross_entropy(lenet(x_shards[i], device_params[i]), y_shards[i], LossReduction::sum).backward();
      },
      static_cast<int>(devices.size()));
  const NoGrad no_grad;
  for (std::size_t i = 0; i < device_params[0].size(); ++i) {
    Tensors grads;
    for (const Tensors& params : device_params) grads.push_back(params[i].grad());
    allreduce(grads);
  }
  for (Tensors& params : device_params) sgd(params, lr, x.size(0));
}

double evaluate_accuracy(const Tensors& params, const std::shared_ptr<const Source>& test,
                         const std::shared_ptr<Device>& device) {
  const NoGrad no_grad;
  double right = 0;
  for (const BatchTensors& batch : DataLoader(test, {.batch_size = 256}, device))
    right += (lenet(batch["image"], params).argmax(1) == batch["label"]).sum().item();
  return right / static_cast<double>(test->size());
}

/// The animator's curve, as text.
void plot(int epoch, double accuracy) {
  const std::string stars(static_cast<std::size_t>(accuracy * 60), '*');
  std::printf("  epoch %2d %.3f |%-60s|\n", epoch, accuracy, stars.c_str());
}

struct Settings {
  int epochs;
  std::int64_t batch_size;
  double lr, scale;
};

void train(const Splits& data, const Devices& devices, const Settings& how) {
  const Tensors params = initial_params(how.scale);
  std::vector<Tensors> device_params;
  for (const auto& device : devices) device_params.push_back(get_params(params, device));
  DataLoader batches(data.train, {.batch_size = how.batch_size, .shuffle = true}, devices[0]);
  std::chrono::duration<double> spent{};
  double accuracy = 0;
  for (int epoch = 1; epoch <= how.epochs; ++epoch) {
    const auto start = std::chrono::steady_clock::now();
    for (const BatchTensors& batch : batches) {
      train_batch(batch["image"], batch["label"], device_params, devices, how.lr);
      for (const auto& device : devices) device->compute_stream().synchronize();
    }
    spent += std::chrono::steady_clock::now() - start;
    accuracy = evaluate_accuracy(device_params[0], data.test, devices[0]);
    plot(epoch, accuracy);
  }
  std::printf("test acc: %.2f, %.1f sec/epoch on %zu device%s\n", accuracy, spent.count() / how.epochs,
              devices.size(), devices.size() == 1 ? "" : "s");
}

// clang-format off
constexpr OptionSpec kOptions[] = {
    {"devices", "Lesson", "N", "", "how many devices; unset: 1, then 2"},
    {"device", "Lesson", "KIND", "cpu", "cpu or cuda"},
    {"epochs", "Lesson", "N", "10", "passes over the training set"},
    {"batch-size", "Lesson", "N", "256", "samples per step, over all devices"},
    {"lr", "Lesson", "X", "0.2", "learning rate"},
    {"scale", "Lesson", "X", "0.01", "standard deviation of the initial weights"},
    {"data-dir", "Lesson", "DIR", "", "folder with Fashion-MNIST; unset: where Debian's package installs it"},
};
// clang-format on

}  // namespace

int main(int argc, char** argv) {
  return run_main("lesson_multi_gpu", [&] {
    const Options options =
        resolve_options("lesson_multi_gpu", kOptions, {argv + 1, argv + argc}, current_environment());
    const Splits data =
        open_splits("fashion-mnist", {.data_dir = options.has("data-dir") ? options.text("data-dir") : ""});
    const Settings how{static_cast<int>(options.integer("epochs", 1, 1000)),
                       options.integer("batch-size", 1, 1 << 20), options.real("lr", 0, 100),
                       options.real("scale", 0, 1)};
    const std::int64_t only = options.has("devices") ? options.integer("devices", 1, 64) : 0;
    Devices devices;
    while (devices.size() < static_cast<std::size_t>(only > 0 ? only : 2)) {
      devices.push_back(
          make_device(options.choice("device", {"cpu", "cuda"}) + ":" + std::to_string(devices.size())));
      if (only == 0 || devices.size() == static_cast<std::size_t>(only)) train(data, devices, how);
    }
    return ExitCode::ok;
  });
}
