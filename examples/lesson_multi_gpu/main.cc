// Data parallelism by hand, as "Training on Multiple GPUs" of Dive into Deep Learning has it, line by line:
// LeNet from scratch on one device, then on two, with the same batches and the same numbers.
//
//     build/examples/lesson_multi_gpu [--devices N] [--epochs N] [--device cpu|cuda] [--data-dir DIR]
//
// Without --devices it trains on 1 and then on 2. The devices are cpu:0, cpu:1, … or GPUs; a CPU's share of
// cores is its own if OMP_NUM_THREADS says how many threads each may use.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>

#include <dtrain/runtime/autograd/fork.h>
#include <dtrain/runtime/autograd/grad_mode.h>
#include <dtrain/runtime/autograd/ops.h>
#include <dtrain/runtime/base/options.h>
#include <dtrain/runtime/data/loader.h>
#include <dtrain/runtime/data/sampler.h>
#include <dtrain/runtime/data/sources/open_source.h>
#include <dtrain/training/batch_tensors.h>
#include <dtrain/training/train_main.h>

using namespace dtrain;

namespace {

using Devices = std::vector<std::shared_ptr<Device>>;

/// Weights are randn · scale, biases 0.
Tensors initial_params(double scale, std::uint64_t seed, const std::shared_ptr<Device>& device) {
  Generator generator(seed);
  const auto weight = [&](const Dims& shape) { return Tensor::randn(shape, generator, device) * scale; };
  const auto bias = [&](std::int64_t size) { return Tensor::zeros({size}, device); };
  return {weight({20, 1, 3, 3}), bias(20),  weight({50, 20, 5, 5}), bias(50),
          weight({800, 128}),    bias(128), weight({128, 10}),      bias(10)};
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
  for (const Tensor& param : params) {
    copies.push_back(param.detach().to(device).clone());
    copies.back().set_requires_grad(true);
  }
  return copies;
}

/// Adds all of `data`, one tensor a device, onto the first, and hands the sum back to the others.
void allreduce(Tensors& data) {
  for (std::size_t i = 1; i < data.size(); ++i) data[0].add_in_place(data[i].to(data[0].shared_device()));
  for (std::size_t i = 1; i < data.size(); ++i) data[i].copy_from(data[0].to(data[i].shared_device()));
}

/// The rows of a batch on each device: so many each, the last fewer.
Tensors split_batch(const Tensor& x, const Devices& devices) {
  Tensors shards = chunk(x, static_cast<std::int64_t>(devices.size()));
  for (std::size_t i = 0; i < shards.size(); ++i) shards[i] = shards[i].to(devices[i]);
  return shards;
}

/// One step: losses on each device at the same time, backward through all of them, gradients added up, and
/// the same update everywhere.
void train_batch(const Tensor& x, const Tensor& y, std::vector<Tensors>& device_params,
                 const Devices& devices, double lr) {
  const Tensors x_shards = split_batch(x, devices), y_shards = split_batch(y, devices);
  std::vector<Fork> losses;
  for (std::size_t i = 0; i < x_shards.size(); ++i) {
    losses.push_back(fork([&, i] {
      return cross_entropy(lenet(x_shards[i], device_params[i]), y_shards[i], LossReduction::sum);
    }));
  }
  Tensor loss = losses[0].wait();
  for (std::size_t i = 1; i < losses.size(); ++i) loss = loss + losses[i].wait().to(devices[0]);
  loss.backward();

  const NoGrad no_grad;
  for (std::size_t i = 0; i < device_params[0].size(); ++i) {
    Tensors grads;
    for (const Tensors& params : device_params) {
      // The last batch may be too small for all devices.
      grads.push_back(params[i].grad().defined() ? params[i].grad() : Tensor::zeros_like(params[i]));
    }
    allreduce(grads);
    for (std::size_t c = 0; c < grads.size(); ++c) {
      device_params[c][i].add_in_place(grads[c], -lr / static_cast<double>(x.size(0)));
      device_params[c][i].zero_grad();
    }
  }
}

double evaluate_accuracy(const Tensors& params, const std::shared_ptr<const Source>& test,
                         const std::shared_ptr<Device>& device) {
  const NoGrad no_grad;
  Loader loader(test, device, {.batch_size = 256});
  loader.start(EvalSampler(test->size(), 1, 0).order(), 0);
  std::int64_t right = 0;
  while (const auto batch = loader.next(Deadline::never())) {
    const BatchTensors tensors = to_tensors(*batch, device);
    const auto guesses = argmax(lenet(tensors["image"], params)).to_vector<std::int64_t>();
    const auto labels = tensors["label"].to_vector<std::int64_t>();
    for (std::size_t i = 0; i < guesses.size(); ++i) right += guesses[i] == labels[i] ? 1 : 0;
  }
  return static_cast<double>(right) / static_cast<double>(test->size());
}

/// The animator's curve, as text.
void plot(const std::vector<double>& accuracies) {
  for (std::size_t epoch = 0; epoch < accuracies.size(); ++epoch) {
    const auto stars = static_cast<std::size_t>(accuracies[epoch] * 60);
    std::printf("  epoch %2zu %.3f |%-60s|\n", epoch + 1, accuracies[epoch], std::string(stars, '*').c_str());
  }
}

void train(const Splits& data, const std::string& kind, int num_devices, int num_epochs,
           std::int64_t batch_size, double lr, double scale, std::uint64_t seed) {
  Devices devices;
  std::string names;
  for (int i = 0; i < num_devices; ++i) {
    const std::string name = kind + ":" + std::to_string(i);
    devices.push_back(make_device(name));
    names += (i > 0 ? ", " : "") + name;
  }
  const Tensors params = initial_params(scale, seed, devices[0]);
  std::vector<Tensors> device_params;
  for (const auto& device : devices) device_params.push_back(get_params(params, device));

  Loader loader(data.train, devices[0], {.batch_size = batch_size});
  const DistributedSampler sampler({.dataset_size = data.train->size(), .seed = seed});
  std::chrono::duration<double> spent{};
  std::vector<double> accuracies;
  for (int epoch = 0; epoch < num_epochs; ++epoch) {
    const auto start = std::chrono::steady_clock::now();
    loader.start(sampler.order(epoch), epoch);
    while (const auto batch = loader.next(Deadline::never())) {
      const BatchTensors tensors = to_tensors(*batch, devices[0]);
      train_batch(tensors["image"], tensors["label"], device_params, devices, lr);
      for (const auto& device : devices) device->compute_stream().synchronize();
    }
    spent += std::chrono::steady_clock::now() - start;
    accuracies.push_back(evaluate_accuracy(device_params[0], data.test, devices[0]));
  }
  plot(accuracies);
  std::printf("test acc: %.2f, %.1f sec/epoch on [%s]\n", accuracies.back(), spent.count() / num_epochs,
              names.c_str());
}

// clang-format off
constexpr OptionSpec kOptions[] = {
    {"devices", "Lesson", "N", "", "how many devices; unset: 1, then 2"},
    {"device", "Lesson", "KIND", "cpu", "cpu or cuda"},
    {"epochs", "Lesson", "N", "10", "passes over the training set"},
    {"batch-size", "Lesson", "N", "256", "samples per step, over all devices"},
    {"lr", "Lesson", "X", "0.2", "learning rate"},
    {"scale", "Lesson", "X", "0.01", "standard deviation of the initial weights"},
    {"seed", "Lesson", "S", "0", "seed of the initial weights and of the order of the samples"},
    {"data-dir", "Lesson", "DIR", "", "folder with Fashion-MNIST; unset: where Debian's package installs it"},
    {"help", "Lesson", "", "", "print this text"},
};
// clang-format on

}  // namespace

int main(int argc, char** argv) {
  return run_main("lesson_multi_gpu", [&] {
    const Options options =
        resolve_options("lesson_multi_gpu", kOptions, {argv + 1, argv + argc}, current_environment());
    if (const auto help = asked_help(options, "usage: lesson_multi_gpu [options]", kOptions)) {
      std::fputs(help->c_str(), stdout);
      return ExitCode::ok;
    }
    const Splits data =
        open_splits("fashion-mnist", {.data_dir = options.has("data-dir") ? options.text("data-dir") : ""});
    const std::int64_t only = options.has("devices") ? options.integer("devices", 1, 64) : 0;
    for (int count = only > 0 ? static_cast<int>(only) : 1; count <= (only > 0 ? only : 2); ++count) {
      train(data, options.choice("device", {"cpu", "cuda"}), count,
            static_cast<int>(options.integer("epochs", 1, 1000)), options.integer("batch-size", 1, 1 << 20),
            options.real("lr", 0, 100), options.real("scale", 0, 1),
            static_cast<std::uint64_t>(options.integer("seed", 0, INT64_MAX)));
    }
    return ExitCode::ok;
  });
}
