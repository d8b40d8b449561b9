// The training loop by hand: a group of processes, a sampler, a network whose gradients are averaged, an
// optimizer. It prints the loss, the accuracy and the seconds of each epoch, and runs alone, under
// dtrain-launch, mpirun or srun:
//
//     dtrain-launch --nproc_per_node=2 build/own_loop fashion-mnist 10
//
// Checkpoints, restarts, options and reports are what train_main() has more (see own_model).
#include <dtrain/dtrain.h>
#include <array>
#include <chrono>
#include <cstdio>

using namespace dtrain;

namespace {

constexpr auto kPatience = std::chrono::minutes(1);  // for a worker that does not answer
constexpr std::int64_t kGlobalBatch = 256;

std::shared_ptr<Module> make_lenet(Generator& generator, const std::shared_ptr<Device>& device) {
  return std::make_shared<Sequential>(std::vector<std::shared_ptr<Module>>{
      std::make_shared<Conv2d>(1, 20, 3, generator, device), std::make_shared<ReLU>(),
      std::make_shared<AvgPool2d>(2), std::make_shared<Conv2d>(20, 50, 5, generator, device),
      std::make_shared<ReLU>(), std::make_shared<AvgPool2d>(2), std::make_shared<Flatten>(),
      std::make_shared<Linear>(800, 128, generator, device), std::make_shared<ReLU>(),
      std::make_shared<Linear>(128, 10, generator, device)});
}

/// The sum over all workers of each of `values`.
template <std::size_t N>
void add_up(std::array<double, N>& values, Communicator& world) {
  const MemorySpan span{.data = values.data(), .count = N, .dtype = DType::f64};
  world.all_reduce(span, ReduceOp::sum, "results")->wait(Deadline::after(kPatience));
}

/// One epoch: the mean loss over all samples of all workers.
double train_epoch(int epoch, Loader& loader, const DistributedSampler& sampler, Module& network,
                   DataParallel& parallel, Optimizer& optimizer, Communicator& world,
                   const std::shared_ptr<Device>& device) {
  std::array<double, 2> loss_and_samples{};
  loader.start(sampler.order(epoch), epoch);
  while (const auto batch = loader.next(Deadline::after(kPatience))) {
    const BatchTensors on_device = to_tensors(*batch, device);
    optimizer.zero_grad();
    const Tensor loss = cross_entropy(network(on_device["image"]), on_device["label"]);
    loss.backward();  // gradients go to the other workers as they become final …
    parallel.finish(Deadline::after(kPatience));  // … and are the average over all workers here
    optimizer.step();
    loss_and_samples[0] += loss.item() * static_cast<double>(batch->size());
    loss_and_samples[1] += static_cast<double>(batch->size());
  }
  add_up(loss_and_samples, world);
  return loss_and_samples[0] / loss_and_samples[1];
}

/// The share of samples that are told right; each worker takes its part of them.
double accuracy(Loader& loader, const EvalSampler& sampler, Module& network, Communicator& world,
                const std::shared_ptr<Device>& device) {
  const NoGrad no_grad;
  std::array<double, 2> right_and_samples{};
  loader.start(sampler.order(), 0);
  while (const auto batch = loader.next(Deadline::after(kPatience))) {
    const BatchTensors on_device = to_tensors(*batch, device);
    const Tensor guesses = argmax(network(on_device["image"]), 1);
    right_and_samples[0] += sum(equal(guesses, on_device["label"]).to(DType::f32)).item();
    right_and_samples[1] += static_cast<double>(batch->size());
  }
  add_up(right_and_samples, world);
  return right_and_samples[0] / right_and_samples[1];
}

ExitCode train(const std::string& data_set, int epochs) {
  const Environment environment = current_environment();
  const Placement placement = find_placement(environment);
  limit_threads(placement, environment);
  FdLog log(2, "own_loop", LogLevel::warning);
  const std::shared_ptr<Device> device = make_device("auto");
  Peers peers(placement, Backend::automatic, environment, kPatience, log, device.get());
  Communicator& world = peers.communicator();

  const Splits data = open_splits(data_set);
  const LoaderOptions batches{.batch_size = kGlobalBatch / world.size(), .threads = 1};
  Loader train_loader(data.train, device, batches), test_loader(data.test, device, batches);
  const DistributedSampler sampler(
      {.dataset_size = data.train->size(), .world_size = world.size(), .rank = world.rank()});
  const EvalSampler test_sampler(data.test->size(), world.size(), world.rank());

  Generator generator(1);  // equal seeds, equal weights
  const std::shared_ptr<Module> network = make_lenet(generator, device);
  DataParallel parallel(world, *network, Deadline::after(kPatience));
  Sgd optimizer(network->named_parameters(), {.lr = 0.2});

  for (int epoch = 0; epoch < epochs; ++epoch) {
    const auto began = std::chrono::steady_clock::now();
    const double loss =
        train_epoch(epoch, train_loader, sampler, *network, parallel, optimizer, world, device);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - began;
    const double right = accuracy(test_loader, test_sampler, *network, world, device);
    if (world.rank() == 0) {
      std::printf("epoch %d: loss %.4f, test accuracy %.4f, %.2f s\n", epoch + 1, loss, right,
                  seconds.count());
      std::fflush(stdout);
    }
  }
  peers.leave();
  return ExitCode::ok;
}

}  // namespace

int main(int argc, char** argv) {
  return run_main("own_loop", [&] {
    if (argc != 3) throw UsageError("expected own_loop DATASET EPOCHS, such as: own_loop fashion-mnist 10");
    return train(argv[1], std::stoi(argv[2]));
  });
}
