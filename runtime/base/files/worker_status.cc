// Two copies a slot, of which the writer writes the older one: however long it is held up or where it is
// killed, the other is whole. Readers try again when the number of writes has changed. All words are atomic,
// so that a read beside a write is no data race.
#include "runtime/base/files/worker_status.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <new>

#include "runtime/base/check.h"
#include "runtime/base/error.h"
#include "runtime/base/options.h"

namespace dtrain {
namespace {

constexpr std::uint64_t kLayout = 0x6474'7261'696e'0002;  // "dtrain", and which fields in which order
constexpr std::size_t kFields = 15;
constexpr int kTries = 1000;  // of a reader, while each time a write ends
constexpr int kMostSlots = 1 << 16;

using Values = std::array<std::uint64_t, kFields>;

Values values_of(const WorkerStatus& status) {
  const auto whole = [](std::int64_t value) { return static_cast<std::uint64_t>(value); };
  const auto real = [](double value) { return std::bit_cast<std::uint64_t>(value); };
  return {kLayout,
          static_cast<std::uint64_t>(status.state),
          status.saving ? 1U : 0U,
          whole(status.step),
          whole(status.total_steps),
          whole(status.epoch),
          real(status.loss),
          real(status.samples_per_second),
          real(status.step_seconds),
          real(status.own_seconds),
          whole(status.checkpoints),
          whole(status.checkpoint_step),
          real(status.checkpoint_seconds),
          static_cast<std::uint64_t>(status.slowness.phase),
          real(status.slowness.factor)};
}

std::optional<WorkerStatus> status_of(const Values& values) {
  const auto whole = [&](std::size_t i) { return static_cast<std::int64_t>(values[i]); };
  const auto real = [&](std::size_t i) { return std::bit_cast<double>(values[i]); };
  if (values[0] != kLayout || values[1] > static_cast<std::uint64_t>(WorkerState::stopping))
    return std::nullopt;
  WorkerStatus status;
  status.state = static_cast<WorkerState>(values[1]);
  status.saving = values[2] != 0;
  status.step = whole(3);
  status.total_steps = whole(4);
  status.epoch = whole(5);
  status.loss = real(6);
  status.samples_per_second = real(7);
  status.step_seconds = real(8);
  status.own_seconds = real(9);
  status.checkpoints = whole(10);
  status.checkpoint_step = whole(11);
  status.checkpoint_seconds = real(12);
  if (values[13] <= static_cast<std::uint64_t>(StragglerPhase::compute))
    status.slowness = {static_cast<StragglerPhase>(values[13]), real(14)};
  return status;
}

/// Of "7:2:1041:4211"; -1 for what is not there.
std::array<std::int64_t, 4> numbers_in(std::string_view text) {
  std::array<std::int64_t, 4> numbers{-1, -1, -1, -1};
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const std::size_t colon = i + 1 < numbers.size() ? text.find(':') : text.npos;
    numbers[i] = parse_integer(text.substr(0, colon)).value_or(-1);
    if (colon == text.npos) break;
    text.remove_prefix(colon + 1);
  }
  return numbers;
}

/// -1 where it is not open.
std::int64_t inode_of(int fd) noexcept {
  struct stat status {};
  return ::fstat(fd, &status) == 0 ? static_cast<std::int64_t>(status.st_ino) : -1;
}

}  // namespace

// Whole cache lines: workers do not write to each other's.
struct alignas(128) StatusSlot::Words {
  std::atomic<std::uint64_t> writes;  ///< that have ended; the last one's is copy number `writes` % 2
  std::array<std::array<std::atomic<std::uint64_t>, kFields>, 2> copies;
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "it is shared between processes");
static_assert(sizeof(StatusSlot::Words) == 256);

std::string_view name_of(WorkerState state) noexcept {
  constexpr std::array<std::string_view, 5> kNames = {"starting", "joined", "training", "evaluating",
                                                      "stopping"};
  return kNames[static_cast<std::size_t>(state)];
}

std::string_view name_of(StragglerPhase phase) noexcept {
  constexpr std::array<std::string_view, 3> kNames = {"none", "data", "compute"};
  return kNames[static_cast<std::size_t>(phase)];
}

StatusSlot StatusSlot::from(const Environment& environment) {
  const std::string* text = find_variable(environment, kStatusVariable);
  if (text == nullptr) return {};
  const auto [number, slot, inode, pid] = numbers_in(*text);
  if (number < 0 || slot < 0 || slot >= kMostSlots || inode < 0 || pid < 0)
    throw UsageError(
        fmt::format("{}: expected a descriptor, a slot, an inode and a process such as 7:2:1041:4211, got "
                    "'{}'; dtrain-launch sets it, do not change it",
                    kStatusVariable, *text));
  int fd = static_cast<int>(number);
  UniqueFd launchers;
  if (inode_of(fd) != inode) {
    launchers.reset(::open(fmt::format("/proc/{}/fd/{}", pid, number).c_str(), O_RDWR | O_CLOEXEC));
    fd = launchers.get();
    if (inode_of(fd) != inode) return {};
  }
  const std::size_t bytes = sizeof(Words) * static_cast<std::size_t>(slot + 1);
  void* page = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (page == MAP_FAILED) throw SystemError(fmt::format("mmap of {} {}", kStatusVariable, *text), errno);
  return StatusSlot(static_cast<Words*>(page)[slot]);
}

void StatusSlot::write(const WorkerStatus& status) noexcept {
  if (words_ == nullptr) return;
  const Values values = values_of(status);
  const std::uint64_t number = words_->writes.load(std::memory_order_relaxed) + 1;
  auto& copy = words_->copies[number % 2];
  // A reader that sees one of these also sees that the write before has ended.
  for (std::size_t i = 0; i < kFields; ++i) copy[i].store(values[i], std::memory_order_release);
  words_->writes.store(number, std::memory_order_release);
}

std::optional<WorkerStatus> StatusSlot::read() const noexcept {
  if (words_ == nullptr) return std::nullopt;
  Values values{};
  for (int i = 0; i < kTries; ++i) {
    const std::uint64_t before = words_->writes.load(std::memory_order_acquire);
    const auto& copy = words_->copies[before % 2];
    for (std::size_t f = 0; f < kFields; ++f) values[f] = copy[f].load(std::memory_order_acquire);
    if (words_->writes.load(std::memory_order_acquire) == before) return status_of(values);
  }
  return std::nullopt;
}

StatusPage::StatusPage(int workers) : bytes_(sizeof(StatusSlot::Words) * static_cast<std::size_t>(workers)) {
  memory_.reset(static_cast<int>(check(Sys{::memfd_create("dtrain-status", MFD_CLOEXEC | MFD_ALLOW_SEALING)},
                                       "memfd_create for the status")));
  check(Sys{::ftruncate(memory_.get(), static_cast<off_t>(bytes_))}, "ftruncate of the status");
  // A worker that cut it short would end the launcher by SIGBUS.
  check(Sys{::fcntl(memory_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)},
        "seal the status");
  void* page = ::mmap(nullptr, bytes_, PROT_READ, MAP_SHARED, memory_.get(), 0);
  if (page == MAP_FAILED) throw SystemError("mmap of the status", errno);
  slots_ = static_cast<StatusSlot::Words*>(page);  // all zero, which is what new words are
}

StatusPage::~StatusPage() { ::munmap(slots_, bytes_); }

std::string StatusPage::variable(int fd, int worker) {
  struct stat status {};
  check(Sys{::fstat(fd, &status)}, "fstat of the status");
  return fmt::format("{}:{}:{}:{}", fd, worker, status.st_ino, ::getpid());
}

StatusSlot StatusPage::slot(int worker) const noexcept { return StatusSlot(slots_[worker]); }

}  // namespace dtrain
