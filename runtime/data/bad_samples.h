// What becomes of samples whose files are damaged.
#pragma once

#include <cstdint>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/keyed_random.h"
#include "runtime/base/log.h"

namespace dtrain {

/// A damaged sample ends the run, or the next one of its part takes its place and it is reported.
enum class OnBadSample { stop, skip };

/// Those that were found so far in one set of files; used by any number of threads. Whether a sample is bad
/// depends on its file alone, so that every rank replaces it by the same one.
class BadSamples {
 public:
  /// Of `size` samples, 1 + size / 100 may be skipped. `log` is borrowed as long as this lives; null: silent.
  BadSamples(OnBadSample what, std::int64_t size, Log* log)
      : what_(what), most_(1 + size / 100), size_(size), log_(log) {}

  /// Before anything is read: `held_out`, of each sample, cuts them into two parts, none of which replaces
  /// samples of the other.
  void keep_apart(std::vector<bool> held_out) { held_out_ = std::move(held_out); }

  /// Sample `index` cannot be read because of `error`. Returns where it is to be skipped, having reported it
  /// the first time; else throws `error`, or one that says how many there are.
  void found(std::int64_t index, const DataError& error);
  std::int64_t count() const;

  /// Reads sample `index` with `read(index, generator)`, or where that throws DataError and may be skipped
  /// the next good one of its part in its place, with the numbers that the place would have drawn. Throws
  /// DataError where there is none.
  template <class Read>
  void read_good(std::int64_t index, KeyedGenerator& generator, Read read) {
    for (std::int64_t at = index;;) {
      KeyedGenerator own = generator;
      try {
        read(at, own);
      } catch (const DataError& error) {
        found(at, error);
        at = next(at);
        if (at == index) all_bad(error);
        continue;
      }
      generator = own;
      return;
    }
  }

 private:
  /// Behind sample `index`, in its part; behind the last one comes the first.
  std::int64_t next(std::int64_t index) const noexcept;
  [[noreturn]] static void all_bad(const DataError& error);

  OnBadSample what_;
  std::int64_t most_, size_;
  Log* log_;
  std::vector<bool> held_out_;
  mutable std::mutex mutex_;
  std::set<std::int64_t> indices_;
};

}  // namespace dtrain
