#include "emulation/machine/machine.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace emulation {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t kMostQueued = 4096;       // a lazy machine does not let a host run further ahead
constexpr std::chrono::milliseconds kQuiet{2};  // … nor does it wait longer for somebody to need it
constexpr std::chrono::microseconds kStalled{50};

}  // namespace

Operation at_once(Kind kind, std::string name, std::function<void()> work) {
  return {kind, std::move(name), [work = std::move(work)] {
            return [&work] {
              work();
              return Progress::done;
            };
          }};
}

int& current_device() noexcept {
  thread_local int device = 0;
  return device;
}

// Never destroyed: what still runs at the end may call. Its thread ends with the process.
Machine& Machine::get() {
  static Machine* const machine = [] {
    auto* const made = new Machine;
    std::atexit([] { get().stop(); });
    return made;
  }();
  return *machine;
}

Machine::Machine()
    : options_(read_options()),
      memory_(options_.memory_bytes),
      faults_(options_.faults),
      order_(options_.seed),
      grids_(options_.seed,
             [this](const void* at) -> std::optional<Watch::Piece> {
               const auto piece = memory_.find(at);
               if (!piece) return std::nullopt;
               return Watch::Piece{piece->data, piece->bytes, piece->kind != MemoryKind::pinned};
             }),
      lost_(options_.visible.size(), cudaSuccess) {
  for (int device = 0; device < device_count(); ++device) {
    legacy_.push_back(make_stream(device, true, 0));
    legacy_.back()->legacy = true;
  }
  // Signals are for the program's own threads.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Machine::stop() {
  {
    const Lock lock(mutex_);
    stopping_ = true;
  }
  work_.notify_all();
  if (thread_.joinable()) thread_.join();
  if (!options_.counts_file.empty()) write(counts_, options_.counts_file);
}

std::shared_ptr<Stream> Machine::make_stream(int device, bool blocking, int priority) {
  auto stream = std::make_shared<Stream>();
  stream->device = device;
  stream->blocking = blocking;
  stream->priority = priority;
  streams_.push_back(stream);
  return stream;
}

std::shared_ptr<Stream> Machine::find(cudaStream_t handle) {
  if (handle == nullptr || handle == cudaStreamLegacy) {
    const auto device = static_cast<std::size_t>(current_device());
    return device < legacy_.size() ? legacy_[device] : nullptr;
  }
  return handle->stream;
}

void Machine::queue(const std::shared_ptr<Stream>& stream, Operation operation) {
  if (stream->capture) {
    auto& nodes = stream->capture->nodes;
    nodes.push_back({std::move(operation), stream->tail});
    stream->tail = {static_cast<std::uint32_t>(nodes.size() - 1)};
    return;
  }
  stream->queue.push_back({++numbers_, std::move(operation), nullptr, nullptr, 0});
  ++queued_;
  last_queued_ = Clock::now();
  work_.notify_all();
}

void Machine::record(const std::shared_ptr<Stream>& stream, const std::shared_ptr<Event>& event) {
  if (stream->capture) {
    event->capture = stream->capture;
    event->nodes = stream->tail;
    return;
  }
  event->capture.reset();
  queue(stream, {Kind::record, "record", {}});
  stream->queue.back().event = event;
  stream->queue.back().version = ++event->recorded;
}

void Machine::make_wait(const std::shared_ptr<Stream>& stream, const std::shared_ptr<Event>& event) {
  if (event->reached >= event->recorded) return;
  queue(stream, {Kind::wait, "wait", {}});
  stream->queue.back().event = event;
  stream->queue.back().version = event->recorded;
}

void Machine::lose(int device, cudaError_t error, const std::string& what) {
  std::fprintf(stderr, "emulated GPU %d: %s\n", device, what.c_str());
  auto& lost = lost_[static_cast<std::size_t>(device)];
  if (lost == cudaSuccess) lost = error;
  for (const auto& stream : streams_) {
    if (stream->device != device) continue;
    // The one that runs is taken off when it returns.
    while (stream->queue.size() > (stream == running_ ? 1U : 0U)) {
      stream->queue.pop_back();
      --queued_;
    }
  }
  progress_.notify_all();
}

cudaError_t Machine::lost(int device) const { return lost_[static_cast<std::size_t>(device)]; }

bool Machine::is_idle(int device) const {
  return std::all_of(streams_.begin(), streams_.end(),
                     [&](const auto& stream) { return stream->device != device || stream->queue.empty(); });
}

void Machine::nudge() {
  if (options_.seed == 0) return;  // it runs what there is anyway
  const auto now = Clock::now();
  const bool rests = now >= needed_until_;
  needed_until_ = now + kQuiet;
  if (rests) work_.notify_all();
}

bool Machine::may_run() const {
  if (queued_ == 0) return false;
  if (options_.seed == 0 || waiting_ > 0 || queued_ > kMostQueued) return true;
  const auto now = Clock::now();
  return now < needed_until_ || now > last_queued_ + kQuiet;
}

// Blocking streams and the legacy stream of a GPU go in the order of their calls.
bool Machine::is_ready(const Stream& stream) const {
  if (stream.queue.empty()) return false;
  const Stream::Queued& first = stream.queue.front();
  if (first.operation.kind == Kind::wait && first.event->reached < first.version) return false;
  if (!stream.blocking) return true;
  for (const auto& other : streams_) {
    if (other->device != stream.device || !other->blocking || other->queue.empty()) continue;
    if (!stream.legacy && !other->legacy) continue;
    if (other->queue.front().number < first.number) return false;
  }
  return true;
}

// Takes the first operation off.
void Machine::finish(Stream& stream) {
  const Stream::Queued& first = stream.queue.front();
  if (first.operation.kind == Kind::record) {
    first.event->reached = std::max(first.event->reached, first.version);
    first.event->when = Clock::now();
  }
  stream.queue.pop_front();
  --queued_;
  progress_.notify_all();
}

// A slow GPU, or slow links: what has been done is over only now.
void Machine::drag(int device, Kind kind, Clock::duration taken) const {
  const int gpu = options_.visible[static_cast<std::size_t>(device)];
  double times = faults_.slowness(Place::speed, gpu);
  if (kind == Kind::collective) times *= faults_.slowness(Place::links, gpu);
  if (times > 1) std::this_thread::sleep_for(taken * (times - 1));
}

// Looks at one stream that is ready, and at another where that one stalls. False: nothing moved.
bool Machine::step(Lock& lock) {
  std::erase_if(streams_, [](const auto& stream) { return stream->destroyed && stream->queue.empty(); });
  std::vector<std::shared_ptr<Stream>> ready;
  for (const auto& stream : streams_) {
    if (is_ready(*stream)) ready.push_back(stream);
  }
  while (!ready.empty()) {
    const std::size_t at = order_.pick(ready.size());
    running_ = ready[at];
    ready.erase(ready.begin() + static_cast<std::ptrdiff_t>(at));
    Stream& stream = *running_;
    Stream::Queued& first = stream.queue.front();
    Progress progress = Progress::done;
    if (first.operation.start) {
      const Kind kind = first.operation.kind;
      lock.unlock();
      if (!first.run) first.run = first.operation.start();
      const auto begun = Clock::now();
      progress = first.run();
      drag(stream.device, kind, Clock::now() - begun);
      lock.lock();
    }
    const std::shared_ptr<Stream> kept = std::move(running_);
    running_.reset();
    const bool is_lost = lost(stream.device) != cudaSuccess;
    if (progress == Progress::done || is_lost) finish(stream);
    if (progress != Progress::stalled || is_lost) return true;
  }
  return false;
}

void Machine::run() {
  Lock lock(mutex_);
  while (!stopping_) {
    if (!may_run()) {
      if (queued_ == 0) {
        work_.wait(lock);
      } else {
        work_.wait_for(lock, kQuiet);
      }
      continue;
    }
    if (!step(lock)) work_.wait_for(lock, kStalled);
  }
}

bool note_work(bool on) {
  Machine::get().work().turn(on);
  return Watch::works();
}

std::vector<Work> take_work() { return Machine::get().work().take(); }

std::map<std::string, std::uint64_t> current_counts() { return values(Machine::get().counts()); }

}  // namespace emulation
