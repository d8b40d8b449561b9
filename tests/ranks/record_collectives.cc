// Runs every collective on every rank of a world and leaves what went in and what came out, for
// numpy_oracle.py to compute it again. Of each rank: rank-R.bin, elements as they lie in memory, and
// rank-R.jsonl, a line for each call, the same calls in the same order on all ranks. What a rank hands over
// is cut from one row of elements for each dtype and count.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <numeric>
#include <random>
#include <span>
#include <sstream>
#include <vector>

#include "runtime/base/error.h"
#include "tests/ranks/world.h"
#include "tests/support/temp_dir.h"

namespace dtrain::test {
namespace {

using Bytes = std::vector<std::byte>;

const Deadline kSoon = Deadline::never();  // the world's own call timeout bounds everything
constexpr std::size_t kMostShift = 61;
constexpr std::array kDTypes = {DType::f32, DType::f64, DType::f16, DType::bf16, DType::i64,
                                DType::i32, DType::i16, DType::i8,  DType::u8,   DType::boolean};
constexpr std::array<std::pair<ReduceOp, std::string_view>, 4> kOps = {
    {{ReduceOp::sum, "sum"}, {ReduceOp::prod, "prod"}, {ReduceOp::max, "max"}, {ReduceOp::min, "min"}}};

// Elements in this rank's file: the offset in bytes, and how many.
struct Place {
  std::size_t offset = 0, count = 0;
};

// One call as this rank sees it. `to` and `from` go with `in` and `out`, message by message.
struct Line {
  std::string call;
  std::string_view op = "";
  int root = -1;
  std::vector<Place> in = {}, out = {};
  std::vector<std::size_t> sends = {};  // of all_to_all
  std::vector<int> to = {}, from = {};
};

// Memory of the host, or of the rank's GPU.
class Array {
 public:
  Array(Device* gpu, DType dtype, std::span<const std::byte> content)
      : gpu_(gpu), dtype_(dtype), host_(content.begin(), content.end()) {
    if (gpu_ == nullptr) return;
    on_gpu_ = gpu_->allocate(std::max<std::size_t>(host_.size(), 1));
    gpu_->copy(on_gpu_, host_.data(), host_.size(), CopyKind::host_to_device, gpu_->compute_stream());
    gpu_->compute_stream().synchronize();
  }
  ~Array() {
    if (gpu_ != nullptr) gpu_->deallocate(on_gpu_, std::max<std::size_t>(host_.size(), 1));
  }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  MemorySpan span() { return part(0, host_.size() / size_of(dtype_)); }
  MemorySpan part(std::size_t begin, std::size_t count) {
    void* const data = gpu_ == nullptr ? host_.data() : on_gpu_;
    return {static_cast<std::byte*>(data) + begin * size_of(dtype_), count, dtype_, gpu_};
  }
  /// As they are now.
  const Bytes& bytes() {
    if (gpu_ != nullptr) {
      gpu_->copy(host_.data(), on_gpu_, host_.size(), CopyKind::device_to_host, gpu_->compute_stream());
      gpu_->compute_stream().synchronize();
    }
    return host_;
  }

 private:
  Device* gpu_;
  DType dtype_;
  Bytes host_;
  void* on_gpu_ = nullptr;
};

template <class T>
void store(Bytes& bytes, std::size_t i, T value) {
  std::memcpy(bytes.data() + i * sizeof(T), &value, sizeof(T));
}

// Numbers of both signs and several magnitudes, so that the order of sums shows, and now and then one that
// is not ordinary.
template <class T>
void fill_with_floats(Bytes& bytes, std::size_t count, std::mt19937_64& random) {
  constexpr std::array kSpecial = {0.0F,
                                   -0.0F,
                                   std::numeric_limits<float>::infinity(),
                                   -std::numeric_limits<float>::infinity(),
                                   std::numeric_limits<float>::quiet_NaN(),
                                   1e-7F,
                                   60000.0F};
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t bits = random();
    const double fraction = 1.0 + static_cast<double>(bits >> 12) * 0x1p-52;
    const double number =
        std::ldexp(fraction, static_cast<int>(bits % 5) - 2) * ((bits >> 3) % 2 == 0 ? 1 : -1);
    const bool is_special = (bits >> 4) % 61 == 0;
    if constexpr (std::is_same_v<T, double>) {
      store(bytes, i, is_special ? double{kSpecial[(bits >> 20) % kSpecial.size()]} : number);
    } else {
      store(bytes, i, T(is_special ? kSpecial[(bits >> 20) % kSpecial.size()] : static_cast<float>(number)));
    }
  }
}

Bytes made_up(DType dtype, std::size_t count, int rank) {
  Bytes bytes(count * size_of(dtype));
  std::mt19937_64 random(static_cast<std::uint64_t>(rank) * 1000 + static_cast<std::uint64_t>(dtype) +
                         count * 100'003);
  switch (dtype) {
    case DType::f32:
      fill_with_floats<float>(bytes, count, random);
      break;
    case DType::f64:
      fill_with_floats<double>(bytes, count, random);
      break;
    case DType::f16:
      fill_with_floats<Float16>(bytes, count, random);
      break;
    case DType::bf16:
      fill_with_floats<BFloat16>(bytes, count, random);
      break;
    case DType::boolean:
      for (std::byte& one : bytes) one = static_cast<std::byte>(random() % 2);
      break;
    default:  // integers: any bits
      for (std::byte& one : bytes) one = static_cast<std::byte>(random());
  }
  return bytes;
}

// What rank `from` has for `to`, where counts may differ: nothing for some, more for others.
std::size_t part_of(int from, int to, std::size_t count) {
  return count * static_cast<std::size_t>((from * 2 + to * 3) % 4) / 2;
}

class Recorder {
 public:
  Recorder(Rank& self, const std::string& folder, Device* gpu)
      : c_(*self.communicator),
        gpu_(gpu),
        data_(fmt::format("{}/rank-{}.bin", folder, self.rank()), std::ios::binary),
        lines_(fmt::format("{}/rank-{}.jsonl", folder, self.rank())) {}

  void record(DType dtype, std::size_t count) {
    dtype_ = dtype;
    count_ = count;
    row_ = made_up(dtype, world() * count * 2 + kMostShift, c_.rank());
    row_at_ = written_;
    write(row_);
    for (const auto& [op, name] : kOps) reductions(op, name);
    all_gather();
    for (int root = 0; root < c_.size(); ++root) {
      for (const auto& [op, name] : kOps) reduce(root, op, name);
      rooted(root);
    }
    all_to_all();
    messages();
    exchange();
    for (int root = 0; root < c_.size() && c_.size() > 1; ++root) offers(root);
  }

  void finish() {
    data_.flush();
    lines_.flush();
    if (!data_ || !lines_) throw std::runtime_error("cannot write the record; is the disk full?");
  }

 private:
  std::size_t world() const { return static_cast<std::size_t>(c_.size()); }
  std::size_t own() const { return static_cast<std::size_t>(c_.rank()); }

  // The next elements to hand over: from another place of the row for each call.
  Place take(std::size_t count) {
    const std::size_t shift = (7 * ++taken_) % kMostShift;
    return {row_at_ + shift * size_of(dtype_), count};
  }
  std::unique_ptr<Array> array(const Place& place) {
    return std::make_unique<Array>(
        gpu_, dtype_, std::span(row_).subspan(place.offset - row_at_, place.count * size_of(dtype_)));
  }
  // For results: filled with what none of them is made of.
  std::unique_ptr<Array> room(std::size_t count) {
    return std::make_unique<Array>(gpu_, dtype_, Bytes(count * size_of(dtype_), std::byte{0x5a}));
  }
  Place write(std::span<const std::byte> bytes) {
    const Place place{written_, bytes.size() / size_of(dtype_)};
    data_.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    const std::size_t padding = (8 - bytes.size() % 8) % 8;
    data_.write("\0\0\0\0\0\0\0", static_cast<std::streamsize>(padding));
    written_ += bytes.size() + padding;
    return place;
  }
  Place write(const MemorySpan& span, Array& of) {
    const auto begin = static_cast<std::size_t>(static_cast<std::byte*>(span.data) -
                                                static_cast<std::byte*>(of.span().data));
    return write(std::span(of.bytes()).subspan(begin, span.bytes()));
  }
  void write(const Line& line) {
    const auto places = [](const std::vector<Place>& all) {
      std::string text;
      for (const Place& one : all)
        text += fmt::format("{}[{},{}]", text.empty() ? "" : ",", one.offset, one.count);
      return text;
    };
    lines_ << fmt::format(
        R"({{"call":"{}","dtype":"{}","count":{},"op":"{}","root":{},"in":[{}],"out":[{}],"sends":[{}],"to":[{}],"from":[{}]}})",
        line.call, name_of(dtype_), count_, line.op, line.root, places(line.in), places(line.out),
        fmt::join(line.sends, ","), fmt::join(line.to, ","), fmt::join(line.from, ","));
    lines_ << '\n';
  }
  // Only what receives a result may change.
  void expect_untouched(const Place& place, Array& given, std::string_view call) const {
    const auto before = std::span(row_).subspan(place.offset - row_at_, place.count * size_of(dtype_));
    const Bytes& now = given.bytes();
    if (!std::equal(before.begin(), before.end(), now.begin(), now.end()))
      throw std::runtime_error(fmt::format("{} {} x {} changed its input", call, name_of(dtype_), count_));
  }

  void reductions(ReduceOp op, std::string_view name) {
    Place in = take(count_);
    auto data = array(in);
    c_.all_reduce(data->span(), op, "all_reduce")->wait(kSoon);
    write(Line{.call = "all_reduce", .op = name, .in = {in}, .out = {write(data->bytes())}});

    in = take(count_ * world());
    auto input = array(in), part = room(count_);
    c_.reduce_scatter(input->span(), part->span(), op, "reduce_scatter")->wait(kSoon);
    write(Line{.call = "reduce_scatter", .op = name, .in = {in}, .out = {write(part->bytes())}});
    expect_untouched(in, *input, "reduce_scatter");

    in = take(count_ * world());
    auto whole = array(in);
    const MemorySpan mine = whole->part(own() * count_, count_);
    c_.reduce_scatter(whole->span(), mine, op, "in place")->wait(kSoon);
    write(Line{.call = "reduce_scatter", .op = name, .in = {in}, .out = {write(mine, *whole)}});
  }

  void all_gather() {
    Place in = take(count_);
    auto mine = array(in), all = room(count_ * world());
    c_.all_gather(mine->span(), all->span(), "all_gather")->wait(kSoon);
    write(Line{.call = "all_gather", .in = {in}, .out = {write(all->bytes())}});
    expect_untouched(in, *mine, "all_gather");

    in = take(count_ * world());
    auto whole = array(in);
    in = {in.offset + own() * count_ * size_of(dtype_), count_};
    c_.all_gather(whole->part(own() * count_, count_), whole->span(), "in place")->wait(kSoon);
    write(Line{.call = "all_gather", .in = {in}, .out = {write(whole->bytes())}});
  }

  void reduce(int root, ReduceOp op, std::string_view name) {
    const Place in = take(count_);
    auto data = array(in);
    c_.reduce(data->span(), op, root, "reduce")->wait(kSoon);
    write(Line{.call = "reduce", .op = name, .root = root, .in = {in}, .out = {write(data->bytes())}});
  }

  void rooted(int root) {
    const bool here = c_.rank() == root;
    Place in = take(count_);
    auto data = array(in);
    c_.broadcast(data->span(), root, "broadcast")->wait(kSoon);
    write(Line{.call = "broadcast", .root = root, .in = {in}, .out = {write(data->bytes())}});

    in = take(count_);
    auto mine = array(in), all = room(here ? count_ * world() : 0);
    c_.gather(mine->span(), all->span(), root, "gather")->wait(kSoon);
    Line gathered{.call = "gather", .root = root, .in = {in}};
    if (here) gathered.out = {write(all->bytes())};
    write(gathered);
    expect_untouched(in, *mine, "gather");

    in = take(here ? count_ * world() : 0);
    auto whole = array(in), part = room(count_);
    c_.scatter(whole->span(), part->span(), root, "scatter")->wait(kSoon);
    write(Line{.call = "scatter", .root = root, .in = {in}, .out = {write(part->bytes())}});
    expect_untouched(in, *whole, "scatter");
  }

  void all_to_all() {
    std::vector<std::size_t> sends, receives;
    for (int peer = 0; peer < c_.size(); ++peer) {
      sends.push_back(part_of(c_.rank(), peer, count_));
      receives.push_back(part_of(peer, c_.rank(), count_));
    }
    const auto sum = [](const auto& counts) {
      return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
    };
    const Place in = take(sum(sends));
    auto input = array(in), output = room(sum(receives));
    c_.all_to_all(input->span(), sends, output->span(), receives, "all_to_all")->wait(kSoon);
    write(Line{.call = "all_to_all", .in = {in}, .out = {write(output->bytes())}, .sends = sends});
    expect_untouched(in, *input, "all_to_all");
  }

  // From everyone to everyone else, one after the other.
  void messages() {
    for (int from = 0; from < c_.size(); ++from) {
      for (int to = 0; to < c_.size(); ++to) {
        if (from != to) message(from, to);
      }
    }
  }
  void message(int from, int to) {
    const Place in = take(count_);
    Line line{.call = "send"};
    if (c_.rank() == from) {
      auto mine = array(in);
      c_.send(mine->span(), to, "send")->wait(kSoon);
      line.in = {in}, line.to = {to};
      expect_untouched(in, *mine, "send");
    } else if (c_.rank() == to) {
      auto theirs = room(count_);
      c_.receive(theirs->span(), from, "send")->wait(kSoon);
      line.out = {write(theirs->bytes())}, line.from = {from};
    }
    write(line);
  }

  // Everyone with everyone else at the same time, two messages each way.
  void exchange() {
    Line line{.call = "exchange"};
    std::vector<std::unique_ptr<Array>> mine, theirs;
    std::vector<Message> sends, receives;
    for (int step = 1; step < c_.size(); ++step) {
      const int to = (c_.rank() + step) % c_.size(), from = (c_.rank() + c_.size() - step) % c_.size();
      for (const std::size_t extra : {std::size_t{0}, count_ / 3}) {
        line.in.push_back(take(part_of(c_.rank(), to, count_) + extra));
        line.to.push_back(to);
        mine.push_back(array(line.in.back()));
        sends.push_back({mine.back()->span(), to});
        theirs.push_back(room(part_of(from, c_.rank(), count_) + extra));
        line.from.push_back(from);
        receives.push_back({theirs.back()->span(), from});
      }
    }
    c_.exchange(sends, receives, "exchange")->wait(kSoon);
    for (const auto& one : theirs) line.out.push_back(write(one->bytes()));
    write(line);
    for (std::size_t i = 0; i < mine.size(); ++i) expect_untouched(line.in[i], *mine[i], "exchange");
  }

  // Two offers of everyone else, taken as they come.
  void offers(int root) {
    Line line{.call = "offer", .root = root};
    for (int i = 0; c_.rank() != root && i < 2; ++i) {
      line.in.push_back(take(count_));
      line.to.push_back(root);
      auto mine = array(line.in.back());
      c_.offer(mine->span(), root, "offer")->wait(kSoon);
      expect_untouched(line.in.back(), *mine, "offer");
    }
    for (int i = 0; c_.rank() == root && i < 2 * (c_.size() - 1); ++i) {
      auto theirs = room(count_);
      int from = -1;
      c_.receive_any(theirs->span(), from, "offer")->wait(kSoon);
      line.out.push_back(write(theirs->bytes()));
      line.from.push_back(from);
    }
    write(line);
  }

  Communicator& c_;
  Device* gpu_;
  std::ofstream data_, lines_;
  DType dtype_ = DType::f32;
  std::size_t count_ = 0, written_ = 0, taken_ = 0, row_at_ = 0;
  Bytes row_;
};

std::string setting(const char* variable) {
  const char* text = std::getenv(variable);
  if (text == nullptr) throw UsageError(fmt::format("{}: expected a value, got none", variable));
  return text;
}

// DTRAIN_RECORD_FOLDER, _COUNTS ("0 1 1003"), _DTYPES ("float32 int8"), _MEMORY (host, or the rank's device).
std::string record(Rank& self) {
  const bool on_host = setting("DTRAIN_RECORD_MEMORY") == "host";
  Recorder recorder(self, setting("DTRAIN_RECORD_FOLDER"), on_host ? nullptr : self.bootstrap.device);
  const std::string dtypes = fmt::format(" {} ", setting("DTRAIN_RECORD_DTYPES"));
  for (const DType dtype : kDTypes) {
    if (dtypes.find(fmt::format(" {} ", name_of(dtype))) == std::string::npos) continue;
    std::istringstream counts(setting("DTRAIN_RECORD_COUNTS"));
    for (std::size_t count = 0; counts >> count;) recorder.record(dtype, count);
  }
  recorder.finish();
  return "ok";
}

constexpr int kSkipped = 77;

int record_world(std::string_view backend, int size) {
  if (!has_backend(backend)) {
    std::printf("%s is not in this build\n", std::string(backend).c_str());
    return kSkipped;
  }
  bool is_ok = true;
  const auto verdicts = run_world(backend, size, "record");
  for (std::size_t rank = 0; rank < verdicts.size(); ++rank) {
    if (verdicts[rank] == "ok") continue;
    is_ok = false;
    std::printf("%s, rank %zu of %d: %s\n", std::string(backend).c_str(), rank, size, verdicts[rank].c_str());
  }
  return is_ok ? 0 : 1;
}

}  // namespace
}  // namespace dtrain::test

int main(int argc, char** argv) {
  using namespace dtrain::test;
  WorldOptions options;
  options.call_timeout = std::chrono::seconds(100);
  options.run_timeout = std::chrono::seconds(500);
  register_scenario("record", record, options);
  if (argc == 3) return record_world(argv[1], std::atoi(argv[2]));
  return run_tests_or_scenario(argc, argv);
}
