#include "emulation/kernel/block.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "emulation/include/emulated_cuda.h"
#include "emulation/include/emulated_source.h"

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace emulation {

namespace {

GridRunner* active = nullptr;
constexpr std::uint32_t kWarp = 32;
constexpr int kPoison = 0xFF;  // a NaN in every floating type

std::string place(const char* file, int line) {
  const char* const slash = std::strrchr(file, '/');
  return std::string(slash == nullptr ? file : slash + 1) + ":" + std::to_string(line);
}

}  // namespace

GridRunner::~GridRunner() = default;

GridRunner& GridRunner::current() noexcept { return *active; }

std::string GridRunner::run(const GridCall& call, const Watch::Wishes& wishes) {
  active = this;
  call_ = &call;
  fault_.clear();
  watch_.begin(wishes, &thread_);
  run_blocks(call);
  if (wishes.twice && fault_.empty()) {
    watch_.undo();
    std::swap(order_, other_order_);
    run_blocks(call);
    std::swap(order_, other_order_);
    if (const std::size_t bytes = watch_.differences(); bytes > 0) {
      fail("its results depend on the order of threads: " + std::to_string(bytes) +
           " bytes differ between two runs");
    }
  }
  watch_.end();
  active = nullptr;
  return fault_;
}

void GridRunner::run_blocks(const GridCall& call) {
  blockDim = call.block;
  gridDim = call.grid;
  const std::size_t blocks = static_cast<std::size_t>(call.grid.x) * call.grid.y * call.grid.z;
  // A large grid is not worth a list of its blocks.
  const bool listed = !order_.natural() && blocks <= (std::size_t{1} << 20);
  if (listed) order_.arrange(blocks_, blocks);
  for (std::size_t i = 0; i < blocks && fault_.empty(); ++i) {
    const std::size_t at = listed ? blocks_[i] : i;
    blockIdx.x = static_cast<unsigned>(at % call.grid.x);
    blockIdx.y = static_cast<unsigned>(at / call.grid.x % call.grid.y);
    blockIdx.z = static_cast<unsigned>(at / call.grid.x / call.grid.y);
    run_block(call);
    if (!watch_.race().empty()) fail(watch_.race());
  }
}

void GridRunner::run_block(const GridCall& call) {
  const std::uint32_t count = call.block.x * call.block.y * call.block.z;
  threads_.assign(count, Thread{});
  for (std::uint32_t i = 0; i < count; ++i) {
    threads_[i].index = {i % call.block.x, i / call.block.x % call.block.y, i / call.block.x / call.block.y};
  }
  warps_.resize((count + kWarp - 1) / kWarp);
  for (auto& warp : warps_) warp.clear();
  tiles_.clear();
  shared_.assign(call.dynamic_shared_bytes, std::byte{kPoison});
  watch_.begin_block(shared_.data(), shared_.size());
  order_.arrange(fresh_, count);
  next_fresh_ = 0;
  ready_.clear();
  live_ = count;
  arrived_ = 0;
  votes_ = 0;
  if (Fiber& first = next(); &first != &home_) first.resume(home_);
  if (fault_.empty()) return;
  workers_.clear();  // their stacks go as they are, in the middle of a kernel
  idle_.clear();
}

// Who runs now that the running fiber does not: that of a thread that may continue, or one for a thread that
// has not begun; the caller's when the block is over.
Fiber& GridRunner::next() {
  if (live_ == 0 || !fault_.empty()) return home_;
  const std::size_t left = fresh_.size() - next_fresh_;
  if (!ready_.empty() && (left == 0 || order_.pick(2) == 0)) {
    const std::size_t at = order_.pick(ready_.size());
    thread_ = ready_[at];
    ready_[at] = ready_.back();
    ready_.pop_back();
    running_ = threads_[thread_].worker;
    threads_[thread_].state = State::running;
    threadIdx = threads_[thread_].index;
    return *running_->fiber;
  }
  if (left > 0) {
    if (idle_.empty() && !add_worker()) return home_;
    running_ = idle_.back();
    idle_.pop_back();
    return *running_->fiber;
  }
  const auto waiting =
      std::find_if(threads_.begin(), threads_.end(), [](const Thread& t) { return t.state != State::done; });
  fail("threads wait for each other: thread " + std::to_string(waiting - threads_.begin()) +
       (waiting->state == State::in_warp   ? " for the lanes of its mask"
        : waiting->state == State::in_tile ? " for the threads of its tile"
                                           : " at the barrier in " + place(waiting->file, waiting->line)));
  return home_;
}

// Whether there is memory for one: an exception must not leave the fiber that asks.
bool GridRunner::add_worker() {
  try {
    auto worker = std::make_unique<Worker>();
    worker->runner = this;
    worker->fiber =
        std::make_unique<Fiber>([](void* self) { static_cast<Worker*>(self)->runner->work(); }, worker.get());
    workers_.push_back(std::move(worker));
    idle_.push_back(workers_.back().get());
    return true;
  } catch (const std::bad_alloc&) {
    fail("no memory for the stacks of its threads");
    return false;
  }
}

// Continues with another fiber, until it is this one's turn again.
void GridRunner::leave(Worker& self) {
  if (Fiber& other = next(); &other != self.fiber.get()) other.resume(*self.fiber);
}

// What a fiber does: one thread after the other, as long as none of them waits.
void GridRunner::work() {
  while (true) {
    Worker* const self = running_;
    while (start_next()) {
      call_->thread();
      running_ = self;
      finish_thread();
      if (!fault_.empty() || !ready_.empty()) break;
    }
    idle_.push_back(self);
    leave(*self);
  }
}

bool GridRunner::start_next() {
  if (next_fresh_ == fresh_.size()) return false;
  thread_ = fresh_[next_fresh_++];
  threadIdx = threads_[thread_].index;
  return true;
}

void GridRunner::finish_thread() {
  threads_[thread_].state = State::done;
  --live_;
  if (live_ > 0 && arrived_ == live_) release_barrier();
}

// The running thread waits: the block continues with another.
void GridRunner::wait() {
  threads_[thread_].worker = running_;
  leave(*running_);
}

void GridRunner::release_barrier() {
  const Thread* first = nullptr;
  for (std::uint32_t i = 0; i < threads_.size(); ++i) {
    Thread& thread = threads_[i];
    if (thread.state != State::at_barrier) continue;
    if (first == nullptr) first = &thread;
    if (thread.line != first->line || std::strcmp(thread.file, first->file) != 0) {
      return fail("divergent barrier: threads of one block wait in " + place(first->file, first->line) +
                  " and in " + place(thread.file, thread.line));
    }
    thread.state = State::ready;
    ready_.push_back(i);
  }
  watch_.meet_block();
  arrived_ = 0;
  last_votes_ = votes_;
  votes_ = 0;
}

void GridRunner::barrier(const char* file, int line) { static_cast<void>(barrier_count(file, line, false)); }

int GridRunner::barrier_count(const char* file, int line, bool value) {
  Thread& self = threads_[thread_];
  self.state = State::at_barrier;
  self.file = file;
  self.line = line;
  votes_ += value ? 1 : 0;
  if (++arrived_ == live_) release_barrier();
  wait();
  return last_votes_;
}

void GridRunner::meet(std::uint32_t first, std::uint32_t count) {
  // Threads that a block does not have are not waited for.
  count = std::min(count, static_cast<std::uint32_t>(threads_.size()) - first);
  auto tile = std::find_if(tiles_.begin(), tiles_.end(),
                           [&](const Tile& t) { return t.first == first && t.count == count; });
  if (tile == tiles_.end()) tile = tiles_.insert(tile, Tile{first, count, 0});
  const int number = static_cast<int>(tile - tiles_.begin());
  if (++tile->arrived == count) {
    tile->arrived = 0;
    watch_.meet_block();
    for (std::uint32_t i = first; i < first + count; ++i) {
      if (threads_[i].state != State::in_tile || threads_[i].wait != number) continue;
      threads_[i].state = State::ready;
      ready_.push_back(i);
    }
    return;
  }
  threads_[thread_].state = State::in_tile;
  threads_[thread_].wait = number;
  wait();
}

const device::Words* GridRunner::exchange(std::uint32_t mask, const std::uint64_t* words,
                                          std::size_t count_of_words) {
  const std::uint32_t lane = thread_ % kWarp, warp = thread_ / kWarp;
  auto& exchanges = warps_[warp];
  // Lanes that a block does not have are not waited for.
  const std::uint32_t base = warp * kWarp, count = static_cast<std::uint32_t>(threads_.size()) - base;
  const std::uint32_t there = count >= kWarp ? mask : mask & ((1U << count) - 1U);
  std::size_t at = 0;
  while (at < exchanges.size() && exchanges[at].mask != there) ++at;
  if (at == exchanges.size()) {
    exchanges.reserve(kWarp);  // pointers into it stay good
    exchanges.emplace_back().mask = there;
  }
  if ((there >> lane & 1U) == 0) fail("a lane calls a warp function whose mask does not name it");
  Exchange& exchange = exchanges[at];
  const int generation = exchange.generation;
  std::copy_n(words, count_of_words, exchange.brought[generation % 2][lane].begin());
  exchange.arrived |= 1U << lane;
  if (exchange.arrived == there) {
    exchange.arrived = 0;
    ++exchange.generation;
    if (there == (count >= kWarp ? 0xFFFFFFFFU : (1U << count) - 1U)) watch_.meet_warp(warp);
    for (std::uint32_t i = 0; i < std::min(count, kWarp); ++i) {
      Thread& other = threads_[base + i];
      if (base + i == thread_ || other.state != State::in_warp || other.wait != static_cast<int>(at))
        continue;
      other.state = State::ready;
      ready_.push_back(base + i);
    }
    return exchange.brought[generation % 2];
  }
  threads_[thread_].state = State::in_warp;
  threads_[thread_].wait = static_cast<int>(at);
  wait();
  return warps_[warp][at].brought[generation % 2];
}

void GridRunner::fail(std::string what) {
  if (fault_.empty()) fault_ = std::move(what);
}

namespace device {

void barrier(const char* file, int line) { GridRunner::current().barrier(file, line); }
int barrier_count(const char* file, int line, bool value) {
  return GridRunner::current().barrier_count(file, line, value);
}
const Words* exchange(std::uint32_t mask, const std::uint64_t* words, std::size_t count) {
  return GridRunner::current().exchange(mask, words, count);
}
void meet(unsigned first, unsigned count) { GridRunner::current().meet(first, count); }
void no_such_instruction(const char* instruction) {
  GridRunner::current().fail(std::string("no emulated GPU has the instruction ") + instruction);
}
void* dynamic_shared() { return GridRunner::current().dynamic_shared(); }

}  // namespace device
}  // namespace emulation
