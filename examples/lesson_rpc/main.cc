// "Implementing a Parameter Server Using Distributed RPC Framework" (PyTorch): rank 0 holds the parameters,
// the others ask it for them and send it gradients, each by a call of a function of rank 0. Here they fit y =
// x · w + b.
//
//     dtrain-launch --nproc_per_node=3 ./lesson_rpc
#include <dtrain/dtrain.h>
#include <cstdio>
#include <mutex>

using namespace dtrain;

Deadline soon() { return Deadline::after(std::chrono::seconds(60)); }

void train(Rpc& rpc) {
  manual_seed(static_cast<std::uint64_t>(rpc.rank()));
  const Tensor x = randn({500, 2});
  const Tensor y = matmul(x, Tensor({2.0, -3.4}).view({2, 1})) + 4.2;
  for (int step = 0; step < 200; ++step) {
    const Tensors now = rpc.call(0, "parameters", {}, soon());
    Tensor w = now[0], b = now[1];
    w.set_requires_grad(true), b.set_requires_grad(true);
    mse_loss(matmul(x, w) + b, y).backward();
    rpc.call(0, "update", {w.grad(), b.grad()}, soon());
  }
}

int main() {
  return run_main("lesson_rpc", [] {
    const Environment environment = current_environment();
    FdLog log(2, "lesson_rpc", LogLevel::warning);
    Peers peers(find_placement(environment), Backend::automatic, environment, std::chrono::minutes(1), log);
    Tensor w = zeros({2, 1}), b = zeros({1});
    std::mutex updating;  // several trainers may call at the same time
    const RemoteFunctions functions = {{"parameters",
                                        [&](int, const Tensors&) {
                                          const std::lock_guard lock(updating);
                                          return Tensors{w.clone(), b.clone()};
                                        }},
                                       {"update", [&](int, const Tensors& gradients) {
                                          const std::lock_guard lock(updating);
                                          w.add_in_place(gradients[0], -0.1),
                                              b.add_in_place(gradients[1], -0.1);
                                          return Tensors();
                                        }}};
    Rpc rpc(peers.communicator(), functions, peers.rpc_options(environment, soon()), soon());
    if (rpc.rank() > 0) train(rpc);
    rpc.shutdown(soon());  // rank 0 answers until all have trained
    peers.leave();
    const std::vector<float> found = w.to_vector<float>();
    if (rpc.rank() == 0) std::printf("w = %.3f %.3f, b = %.3f\n", found[0], found[1], b.item());
    return ExitCode::ok;
  });
}
