// One oneDNN primitive made ready to run again and again on other data of the same shapes: its arguments, the
// reorders between the caller's layouts and the ones it prefers, and how much scratch memory all that takes.
#pragma once

#include <oneapi/dnnl/dnnl.hpp>

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

namespace dtrain::cpu::onednn {

class Plan {
 public:
  enum class Direction { in, out };

  explicit Plan(const dnnl::engine& engine) : engine_(engine) {}

  void set_primitive(dnnl::primitive primitive) { primitive_ = std::move(primitive); }
  /// Declares argument `id`, which the caller has as `user` and the primitive wants as `wanted`.
  void add(int id, Direction direction, const dnnl::memory::desc& user, const dnnl::memory::desc& wanted);
  /// Declares memory that lives only while the primitive runs.
  void add_scratchpad(const dnnl::memory::desc& desc);
  /// Makes run() clear scratch memory and results first, for a primitive that leaves parts of them unwritten.
  void clear_first() noexcept { clears_ = true; }

  /// Says that the primitive adds up each element's terms one behind the other, whatever elements are beside
  /// it.
  void add_in_one_chain() noexcept { one_chain_ = true; }
  bool adds_in_one_chain() const noexcept { return one_chain_; }

  std::size_t scratch_bytes() const noexcept { return scratch_bytes_; }
  /// Runs on `data`, one pointer for each add() in its order; `scratch` has scratch_bytes(), aligned to 64.
  void run(dnnl::stream& stream, std::span<void* const> data, std::byte* scratch);

 private:
  struct Argument {
    Direction direction;
    dnnl::memory user, wanted;  ///< the same memory where no reorder is needed
    dnnl::primitive reorder;    ///< empty where none is needed
    std::size_t offset_bytes = 0;
  };

  std::size_t reserve(std::size_t bytes);

  dnnl::engine engine_;
  dnnl::primitive primitive_;
  std::vector<Argument> arguments_;
  dnnl::memory scratchpad_;
  std::size_t scratchpad_offset_bytes_ = 0;
  std::size_t scratch_bytes_ = 0;
  bool clears_ = false, one_chain_ = false;
  std::unordered_map<int, dnnl::memory> bound_;
};

/// What a plan was made for: operation, dtypes, shapes, strides and flags, in a fixed order.
class PlanKey {
 public:
  void add(std::int64_t value) {
    values_.push_back(value);
    hash_ = (hash_ ^ static_cast<std::uint64_t>(value)) * 0x9E3779B97F4A7C15ULL;
    hash_ ^= hash_ >> 29;
  }
  bool operator==(const PlanKey& other) const { return values_ == other.values_; }
  std::size_t hash() const noexcept { return hash_; }

 private:
  std::vector<std::int64_t> values_;
  std::uint64_t hash_ = 0;
};

/// The plans used last. A null plan remembers that the library has no fast version for a key.
class PlanCache {
 public:
  explicit PlanCache(std::size_t capacity) : capacity_(capacity) {}

  /// The plan for `key`, made by `make()` when it is not here; the one unused longest makes room.
  template <class Make>
  Plan* get(const PlanKey& key, Make&& make) {
    if (const auto found = index_.find(key); found != index_.end()) {
      entries_.splice(entries_.begin(), entries_, found->second);
      return entries_.front().second.get();
    }
    entries_.emplace_front(key, make());
    index_.emplace(key, entries_.begin());
    if (entries_.size() > capacity_) {
      index_.erase(entries_.back().first);
      entries_.pop_back();
    }
    return entries_.front().second.get();
  }

 private:
  struct Hash {
    std::size_t operator()(const PlanKey& key) const noexcept { return key.hash(); }
  };
  using Entries = std::list<std::pair<PlanKey, std::unique_ptr<Plan>>>;

  std::size_t capacity_;
  Entries entries_;
  std::unordered_map<PlanKey, Entries::iterator, Hash> index_;
};

}  // namespace dtrain::cpu::onednn
