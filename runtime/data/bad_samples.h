// What becomes of samples whose files are damaged.
#pragma once

#include <cstdint>
#include <mutex>
#include <set>

#include "runtime/base/error.h"
#include "runtime/base/keyed_random.h"
#include "runtime/base/log.h"

namespace dtrain {

/// A damaged sample ends the run, or the next one takes its place and it is reported.
enum class OnBadSample { stop, skip };

/// Those that were found so far in one set of files; used by any number of threads. Whether a sample is bad
/// depends on its file alone, so that every rank replaces it by the same one.
class BadSamples {
 public:
  /// Of `size` samples, 1 + size / 100 may be skipped. `log` is borrowed as long as this lives; null: silent.
  BadSamples(OnBadSample what, std::int64_t size, Log* log) : what_(what), most_(1 + size / 100), log_(log) {}

  /// Sample `index` cannot be read because of `error`. Returns where it is to be skipped, having reported it
  /// the first time; else throws `error`, or one that says how many there are.
  void found(std::int64_t index, const DataError& error);
  std::int64_t count() const;

  /// Reads sample `index` of `size` with `read(index, generator)`, or where that throws DataError and may be
  /// skipped the next good one in its place, with the numbers that the place would have drawn.
  template <class Read>
  void read_good(std::int64_t index, std::int64_t size, KeyedGenerator& generator, Read read) {
    for (std::int64_t at = index;; at = (at + 1) % size) {
      KeyedGenerator own = generator;
      try {
        read(at, own);
      } catch (const DataError& error) {
        found(at, error);
        continue;
      }
      generator = own;
      return;
    }
  }

 private:
  OnBadSample what_;
  std::int64_t most_;
  Log* log_;
  mutable std::mutex mutex_;
  std::set<std::int64_t> indices_;
};

}  // namespace dtrain
