// The random numbers that samples get from PyTorch's DataLoader, which depend on how many workers it has: for
// comparing a run with PyTorch's, batch by batch.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/base/random.h"

namespace dtrain {

/// The generators of one epoch of a program that calls torch.manual_seed(seed + epoch) before it iterates
/// over DataLoader(num_workers=workers): each worker has one, seeded by a number drawn from the program's and
/// its place, and worker b mod W reads batch b from its beginning to its end. Without workers the program's
/// own continues after that number.
class TorchDraws {
 public:
  TorchDraws(std::uint64_t seed, std::int64_t epoch, int workers)
      : in_use_(static_cast<std::size_t>(workers == 0 ? 1 : workers)) {
    Generator program(seed + static_cast<std::uint64_t>(epoch));
    const std::uint64_t base = program.next64() & (~std::uint64_t{0} >> 1);  // an int64 that is not negative
    if (workers == 0) generators_.push_back(program);
    for (int i = 0; i < workers; ++i) generators_.emplace_back(base + static_cast<std::uint64_t>(i));
  }

  /// Those of batch `number`: to be drawn from when all before it of the same worker are read.
  Generator& of(std::int64_t number) noexcept { return generators_[place(number)]; }

  /// Whether the worker of batch `number` is reading. The caller's lock guards both.
  bool in_use(std::int64_t number) const noexcept { return in_use_[place(number)]; }
  void set_in_use(std::int64_t number, bool value) noexcept { in_use_[place(number)] = value; }

 private:
  std::size_t place(std::int64_t number) const noexcept {
    return static_cast<std::size_t>(number) % in_use_.size();
  }

  std::vector<Generator> generators_;
  std::vector<bool> in_use_;
};

}  // namespace dtrain
