// "Automatic Parallelism" (Dive into Deep Learning): products on two devices one after the other and at the
// same time, and copies while products are computed. Devices of the CPU stand in where there is no
// GPU:
//
//     OMP_NUM_THREADS=1 build/lesson_parallelism [SIZE [DEVICE DEVICE]]        # 800 cpu:0 cpu:1
#include <dtrain/dtrain.h>
#include <dtrain/runtime/autograd/fork.h>
#include <chrono>
#include <cstdio>

using namespace dtrain;

Tensors run(const Tensor& x) {
  Tensors products;
  for (int i = 0; i < 10; ++i) products.push_back(matmul(x, x));
  return products;
}

Tensors copy_to(const std::shared_ptr<Device>& device, const Tensors& tensors) {
  Tensors copies;
  for (const Tensor& x : tensors) copies.push_back(x.to(device));
  return copies;
}

double benchmark(const char* what, const std::vector<std::shared_ptr<Device>>& devices,
                 const std::function<void()>& body) {
  const auto begin = std::chrono::steady_clock::now();
  body();
  for (const auto& device : devices) device->compute_stream().synchronize();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  std::printf("%s: %.4f sec\n", what, seconds.count());
  return seconds.count();
}

int main(int argc, char** argv) {
  return run_main("lesson_parallelism", [&] {
    const std::int64_t size = argc > 1 ? std::stoi(argv[1]) : 800;
    const auto one = make_device(argc > 3 ? argv[2] : "cpu:0"),
               two = make_device(argc > 3 ? argv[3] : "cpu:1");
    const auto host = make_device("cpu");
    const Tensor a = Tensor::ones({size, size}, one), b = Tensor::ones({size, size}, two);
    run(a), run(b);  // warm up
    const double alone = benchmark("the first device", {one}, [&] { run(a); }) +
                         benchmark("the second device", {two}, [&] { run(b); });
    const double both = benchmark("both at the same time", {one, two}, [&] {
      const Fork branch = fork_all([&] { return run(b); });
      run(a);
      branch.wait_all();
    });
    std::printf("%.2f times as fast together\n", alone / both);
    Tensors y;
    benchmark("run", {one}, [&] { y = run(a); });
    benchmark("copy to the host", {one}, [&] { copy_to(host, y); });
    benchmark("run and copy", {one}, [&] { copy_to(host, run(a)); });  // a GPU copies while it computes
    std::printf("each element is %.0f\n", y.back().to(host)[0][0].item());
    return ExitCode::ok;
  });
}
