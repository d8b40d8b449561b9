// "Parameter Servers" (Dive into Deep Learning): a key-value store that workers push gradients to and pull
// parameters from, with the update as the server's own function; the same by remote calls is the lesson
// "Parameter Server with Distributed RPC" of PyTorch. Two workers fit y = x · w + b, each on its half of the
// samples.
#include <dtrain/dtrain.h>
#include <dtrain/parallel/server/key_value_store.h>
#include <dtrain/parallel/server/parameter_server.h>
#include <cstdio>
#include <thread>

using namespace dtrain;

constexpr int kWorkers = 2;
constexpr auto kPatience = std::chrono::seconds(30);

void work(int worker, const std::string& address) {
  const auto soon = [] { return Deadline::after(kPatience); };
  KeyValueStore store(std::vector{address}, {.worker = worker}, soon());
  manual_seed(static_cast<std::uint64_t>(worker));
  const Tensor x = randn({500, 2});
  const Tensor y = matmul(x, Tensor({2.0, -3.4}).view({2, 1})) + 4.2;
  Tensor w = zeros({2, 1}), b = zeros({1});
  w.set_requires_grad(true), b.set_requires_grad(true);
  store.init("w", w.detach(), soon()), store.init("b", b.detach(), soon());
  for (int step = 0; step < 100; ++step) {
    w.zero_grad(), b.zero_grad();
    mse_loss(matmul(x, w) + b, y).backward();
    store.push({{"w", w.grad()}, {"b", b.grad()}}, 0.1,
               soon());  // the server updates by the workers' average
    store.pull({{"w", w.detach()}, {"b", b.detach()}}, soon());
  }
  const std::vector<float> found = w.to_vector<float>();
  if (worker == 0) std::printf("w = %.3f %.3f, b = %.3f\n", found[0], found[1], b.item());
  store.disconnect(soon());
}

int main() {
  return run_main("lesson_servers", [] {
    const auto update = [](const std::string&, const Tensor& gradient, Tensor& value, double rate) {
      value.add_in_place(gradient, -rate);
    };
    ParameterServer server({.workers = kWorkers}, make_updater(update), {});
    std::vector<std::jthread> workers;
    for (int i = 0; i < kWorkers; ++i) workers.emplace_back([&, i] { work(i, server.address()); });
    server.run(kPatience);
    return ExitCode::ok;
  });
}
