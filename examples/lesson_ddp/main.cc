// "Getting Started with Distributed Data Parallel" (PyTorch): a basic step, a checkpoint that one rank writes
// and all read, and a network whose layers are on two devices of each process.
//
//     build/lesson_ddp
#include <dtrain/dtrain.h>
#include <dtrain/parallel/placed/placed_module.h>
#include <cstdio>
#include <filesystem>

using namespace dtrain;

const auto kSoon = [] { return Deadline::after(std::chrono::seconds(30)); };

class ToyModel final : public Module {
 public:
  ToyModel(const std::shared_ptr<Device>& one, const std::shared_ptr<Device>& two) {
    net1_ = add_module("net1", place(std::make_shared<Linear>(10, 10, default_generator(), one), one));
    net2_ = add_module("net2", place(std::make_shared<Linear>(10, 5, default_generator(), two), two));
  }
  Tensor forward(const Tensor& x) override { return (*net2_)(relu((*net1_)(x))); }

 private:
  std::shared_ptr<Module> net1_, net2_;
};

/// A step on samples of this rank's own; then every rank has the same weights.
void step(Communicator& world, ToyModel& model, const std::shared_ptr<Device>& out, const char* what) {
  DataParallel ddp_model(world, model, kSoon());
  Sgd optimizer(model.named_parameters(), {.lr = 0.001});
  optimizer.zero_grad();
  const Tensor outputs = model(randn({20, 10}));
  const Tensor labels = randn({20, 5}).to(out);
  mse_loss(outputs, labels).backward();
  ddp_model.finish(kSoon());
  optimizer.step();

  const Tensor weight = model.named_parameters().front().second.detach();
  const Tensor mean_weight = all_reduce(weight, {world, std::chrono::seconds(30)}, "weight") / world.size();
  if (world.rank() == 0)
    std::printf("%s: weights %s\n", what,
                amax(abs(weight - mean_weight), {}).item() < 1e-6 ? "agree" : "differ");
}

void demo_basic(Communicator& world, const std::shared_ptr<Device>& device) {
  ToyModel model(device, device);
  step(world, model, device, "basic");
}

void demo_checkpoint(Communicator& world, const std::shared_ptr<Device>& device) {
  ToyModel model(device, device);
  const auto path = std::filesystem::temp_directory_path() / "lesson_ddp.safetensors";
  if (world.rank() == 0) save_weights(model, path);
  world.barrier("saved")->wait(kSoon());
  load_weights(model, path);
  step(world, model, device, "checkpoint");
  world.barrier("loaded")->wait(kSoon());
  if (world.rank() == 0) std::filesystem::remove(path);
}

void demo_model_parallel(Communicator& world) {
  const auto one = make_device("cpu:0"), two = make_device("cpu:1");
  ToyModel model(one, two);
  step(world, model, two, "model parallel");
}

int main() {
  return run_main("lesson_ddp", [] {
    spawn_workers(2);
    const Environment environment = current_environment();
    const Placement placement = find_placement(environment);
    FdLog log(2, "lesson_ddp", LogLevel::warning);
    const auto device = make_device("cpu");
    Peers peers(placement, Backend::automatic, environment, std::chrono::seconds(30), log, device.get());
    manual_seed(static_cast<std::uint64_t>(peers.communicator().rank()));
    demo_basic(peers.communicator(), device);
    demo_checkpoint(peers.communicator(), device);
    demo_model_parallel(peers.communicator());
    peers.leave();
    return ExitCode::ok;
  });
}
