// Pictures a second of one thread, in CPU time, for images.py, cached.py and loaders.py: each line of
// standard input, "WORK ROUNDS", is answered by a number. The files named as arguments are in memory. WORK is
// decode (the whole picture), part (what train decodes), train (--augment imagenet, 224 pixels) or evaluate;
// with "cached-" in front, with all pictures decoded before. In place of files there may be one data set,
// shards:PATTERN,…; WORK is then load: batches of 32 as training reads them, in a random order; or
// load-N: the same by N threads, in seconds of the clock.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iostream>
#include <iterator>
#include <random>
#include <string_view>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/data/images/files/picture_cache.h"
#include "runtime/data/images/transform.h"
#include "runtime/data/loader.h"
#include "runtime/data/sources/open_source.h"

namespace dtrain {
namespace {

using Bytes = std::vector<std::uint8_t>;

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double per_second(std::string work, int rounds, const std::vector<Bytes>& files) {
  constexpr std::string_view kCached = "cached-";
  const bool is_cached = work.starts_with(kCached);
  if (is_cached) work.erase(0, kCached.size());
  PictureCache cache(is_cached ? SIZE_MAX : 0);
  const auto open = [&](std::size_t i) {
    const auto decode = [&] { return open_picture({files[i], "a file"}); };
    return is_cached ? cache.open(&files, static_cast<std::int64_t>(i), decode) : decode();
  };
  for (std::size_t i = 0; is_cached && i < files.size(); ++i) open(i);
  constexpr int kSize = 224, kResize = 256;
  const PictureTransform transform(
      kSize, kResize, work == "train" || work == "part" ? augmentation_named("imagenet") : Augmentation{});
  std::vector<float> numbers(3 * kSize * kSize);
  const Dims shape{3, kSize, kSize};
  const View image{numbers.data(), DType::f32, shape, contiguous_strides(shape)};
  Picture memory;
  const double begin = cpu_seconds();
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < files.size(); ++i) {
      const auto picture = open(i);
      KeyedGenerator generator(1, static_cast<std::uint64_t>(round), i);
      if (work == "decode") {
        picture->decode({0, 0, picture->size().width, picture->size().height}, memory);
      } else if (work == "part") {
        const auto [crop, how] =
            transform.seen_region(picture->size(), transform.draw(picture->size(), generator));
        Region part = pixels_needed(how);
        part.left += crop.left;
        part.top += crop.top;
        picture->decode(part, memory);
      } else {
        transform(*picture, generator, image);
      }
    }
  }
  return rounds * static_cast<double>(files.size()) / (cpu_seconds() - begin);
}

double clock_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double loaded_per_second(Loader& loader, std::int64_t samples, int rounds, std::int64_t& epoch,
                         double (*seconds)()) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(samples * rounds));
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int64_t>(i) % samples;
  std::mt19937 generator(static_cast<unsigned>(epoch));
  std::shuffle(order.begin(), order.end(), generator);
  const double begin = seconds();
  loader.start(order, epoch++);
  while (loader.next(Deadline::never())) {
  }
  return rounds * static_cast<double>(samples) / (seconds() - begin);
}

int serve_data_set(std::string_view name) {
  const auto source = open_splits(name, {.data_dir = {}, .augment = augmentation_named("imagenet")}).train;
  constexpr std::string_view kThreads = "load-";
  std::string work;
  std::int64_t epoch = 0;
  for (int rounds = 0; std::cin >> work >> rounds;) {
    const int threads = work.starts_with(kThreads) ? std::atoi(work.c_str() + kThreads.size()) : 0;
    if (work != "load" && threads < 1) {
      throw UsageError("bench_images: expected load or load-N with a data set, got " + work);
    }
    Loader loader(source, make_device("cpu"), {.batch_size = 32, .threads = threads, .prefetch = 4});
    fmt::print("{}\n", loaded_per_second(loader, source->size(), rounds, epoch,
                                         threads > 0 ? clock_seconds : cpu_seconds));
    std::fflush(stdout);
  }
  return 0;
}

int serve(int argc, char** argv) {
  if (argc == 2 && std::string_view(argv[1]).starts_with("shards:")) return serve_data_set(argv[1]);
  std::vector<Bytes> files;
  for (int i = 1; i < argc; ++i) {
    std::ifstream in(argv[i], std::ios::binary);
    files.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  }
  std::string work;
  for (int rounds = 0; std::cin >> work >> rounds;) {
    fmt::print("{}\n", per_second(work, rounds, files));
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace dtrain

int main(int argc, char** argv) {
  try {
    return dtrain::serve(argc, argv);
  } catch (const dtrain::Error& error) {
    fmt::print(stderr, "bench_images: {}\n", error.what());
    return 1;
  }
}
