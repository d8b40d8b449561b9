// Trains a perceptron as `dtrain train` does, in steps of 10 ms; rank 1 takes 30 ms while the file in
// DTRAIN_TEST_SLOW is there. Ranks are compared over two seconds in place of two minutes.
#include <filesystem>
#include <thread>

#include "models/tasks/classification.h"
#include "training/start/threads.h"
#include "training/train_main.h"
#include "training/worker.h"

using namespace dtrain;
using std::chrono::milliseconds;

namespace {

class Slowed final : public Task {
 public:
  Slowed(bool slowed, std::filesystem::path while_there) : slowed_(slowed), while_(std::move(while_there)) {}
  std::string name() const override { return inner_.name(); }
  Splits open(const DataRequest& request) const override { return inner_.open(request); }
  std::unique_ptr<Module> build(std::span<const Field> fields, Generator& generator,
                                const std::shared_ptr<Device>& device) const override {
    return inner_.build(fields, generator, device);
  }
  Tensor loss(const Tensors& outputs, const BatchTensors& batch) const override {
    std::this_thread::sleep_for(slowed_ && std::filesystem::exists(while_) ? milliseconds(30)
                                                                           : milliseconds(10));
    return inner_.loss(outputs, batch);
  }

 private:
  Classification inner_{"mlp"};
  bool slowed_;
  std::filesystem::path while_;
};

ExitCode train(const std::vector<std::string>& arguments) {
  const Environment environment = current_environment();
  const Options options = resolve_options("straggler_trainer", train_options(), arguments, environment);
  const Placement placement = find_placement(environment);
  const ServerRole role = find_server_role(options, placement, environment);
  const TrainConfig config = make_train_config(options, "mlp", role.workers);
  limit_threads(placement, environment, config.threads, 1);
  StopSignal stop_signal;
  WorkerLog log(worker_name(*placement.rank, role.workers));
  const Slowed task(placement.rank == 1, variable_or(environment, "DTRAIN_TEST_SLOW", ""));
  return run_worker({task, environment, options, config, stop_signal, std::chrono::seconds(2)}, placement,
                    role, log);
}

}  // namespace

int main(int argc, char** argv) {
  return run_main("straggler_trainer", [&] { return train({argv + 1, argv + argc}); });
}
