// Ways in which ranks share tensors, and the values each must hold: for tests of sharded checkpoints.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "tests/unit/checkpoint/samples.h"

namespace dtrain::test {

/// How the tensors of a job are shared out.
enum class Cut { data, elements, rows, columns, stages, rows_and_elements };

inline constexpr Cut kAllCuts[] = {Cut::data,    Cut::elements, Cut::rows,
                                   Cut::columns, Cut::stages,   Cut::rows_and_elements};

inline std::string name_of(Cut cut) {
  constexpr const char* kNames[] = {"data", "elements", "rows", "columns", "stages", "rows_and_elements"};
  return kNames[static_cast<int>(cut)];
}

/// The part of tensor number `index` that `rank` of `world` holds; count 0 where it holds nothing.
inline TensorShard part_of(Cut cut, const Dims& shape, int index, int rank, int world) {
  const auto share = [](std::int64_t size, std::int64_t i, std::int64_t n) { return size * i / n; };
  const TensorShard whole = TensorShard::whole(shape), none = whole.range(0, 0);
  const auto along = [&](int dim, int i, int n) {
    if (shape.rank() == 0) return i == 0 ? whole : none;
    return TensorShard::slice(shape, dim, share(shape[dim], i, n), share(shape[dim], i + 1, n));
  };
  const auto range = [&](const TensorShard& part, int i, int n) {
    const std::int64_t first = share(part.count, i, n);
    return part.range(first, share(part.count, i + 1, n) - first);
  };
  switch (cut) {
    case Cut::data:
      return rank == 0 ? whole : none;
    case Cut::elements:
      return range(whole, rank, world);
    case Cut::rows:
      return along(0, rank, world);
    case Cut::columns:
      return along(shape.rank() - 1, rank, world);
    case Cut::stages:
      return index % world == rank ? whole : none;
    case Cut::rows_and_elements: {
      const int rows = world % 2 == 0 ? 2 : 1, inner = world / rows;
      return range(along(0, rank / inner, rows), rank % inner, inner);
    }
  }
  return none;
}

/// The values of `part` of a tensor whose values are `full`, found index by index.
template <class T>
std::vector<T> values_of(const TensorShard& part, const std::vector<T>& full) {
  std::vector<T> held;
  std::int64_t inside = 0;
  for (std::int64_t at = 0; at < part.shape.product(); ++at) {
    std::int64_t rest = at;
    bool in_box = true;
    for (int d = part.shape.rank() - 1; d >= 0; --d) {
      const std::int64_t index = rest % part.shape[d];
      rest /= part.shape[d];
      in_box = in_box && index >= part.begin[d] && index < part.begin[d] + part.extent[d];
    }
    if (!in_box) continue;
    if (inside >= part.first && inside < part.first + part.count)
      held.push_back(full[static_cast<std::size_t>(at)]);
    ++inside;
  }
  return held;
}

/// What one rank of a job that is cut in `cut` saves after `step`; every value depends on step, tensor and
/// position.
class ShardSample {
 public:
  ShardSample(std::int64_t step, Cut cut, const Shard& shard, std::int64_t scale = 1)
      : first_shard_(shard.index == 0) {
    snapshot_.state.step = step;
    snapshot_.state.config_hash = name_of(cut);
    int index = 0;
    for (const auto& [name, shape] : shapes(scale)) {
      add<float>(snapshot_.model, name, part_of(cut, shape, index, shard.index, shard.count), step, index);
      add<std::int64_t>(snapshot_.optimizer, name + ".steps",
                        part_of(cut, shape, index, shard.index, shard.count), step, index);
      ++index;
    }
  }
  const Snapshot& get() const noexcept { return snapshot_; }

  /// `scale` makes the first one larger.
  static std::vector<std::pair<std::string, Dims>> shapes(std::int64_t scale = 1) {
    return {{"embed.weight", {10 * scale, 6}},
            {"fc1.weight", {8, 12}},
            {"fc1.bias", {8}},
            {"conv.weight", {4, 3, 2, 2}},
            {"scale", {}},
            {"empty", {0, 4}},
            {"one", {1, 1}}};
  }

  template <class T>
  static std::vector<T> full(const Dims& shape, std::int64_t step, int index) {
    std::vector<T> values(static_cast<std::size_t>(shape.product()));
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<T>(step * 1000 + index * 100 + static_cast<std::int64_t>(i % 97));
    return values;
  }

  /// Empty when every tensor of `checkpoint`, read by rank `shard` of a job cut in `cut`, has the values of
  /// `step`; else what is wrong.
  static std::string mismatch(const Checkpoint& checkpoint, std::int64_t step, Cut cut, const Shard& shard,
                              std::int64_t scale = 1) {
    int index = 0;
    for (const auto& [name, shape] : shapes(scale)) {
      const TensorShard part = part_of(cut, shape, index, shard.index, shard.count);
      if (!same<float>(checkpoint.model, name, part, step, index)) return name + " " + part.to_string();
      if (!same<std::int64_t>(checkpoint.optimizer, name + ".steps", part, step, index))
        return name + ".steps";
      ++index;
    }
    return "";
  }

 private:
  template <class T>
  void add(std::vector<NamedView>& list, const std::string& name, const TensorShard& part, std::int64_t step,
           int index) {
    const bool is_empty_tensor = part.shape.product() == 0;  // the first shard's
    if (part.count == 0 && !(is_empty_tensor && first_shard_)) return;
    NamedView view =
        tensors_.add<T>(name, part.held_shape(), values_of(part, full<T>(part.shape, step, index)));
    view.part = part;
    list.push_back(std::move(view));
  }

  template <class T>
  static bool same(const TensorFiles& files, const std::string& name, const TensorShard& part,
                   std::int64_t step, int index) {
    const SavedTensor* saved = files.find(name);
    if (saved == nullptr || saved->shape != part.shape || saved->dtype != dtype_of<T>) return false;
    std::vector<T> found(static_cast<std::size_t>(part.count));
    const Dims shape = part.held_shape();
    files.read(name, part, View{found.data(), dtype_of<T>, shape, contiguous_strides(shape)});
    return found == values_of(part, full<T>(part.shape, step, index));
  }

  Tensors tensors_;
  bool first_shard_;
  Snapshot snapshot_;
};

/// The stores of all ranks of a job, in this process.
class ShardGroup {
 public:
  ShardGroup(const std::filesystem::path& directory, int keep, int world, Log& log) {
    for (int rank = 0; rank < world; ++rank) {
      stores_.push_back(std::make_unique<CheckpointStore>(directory, keep, log));
      if (rank == 0) {
        writer().begin_writing(0);
      } else {
        stores_.back()->write_for(writer().writer_id());
      }
    }
  }

  int world() const { return static_cast<int>(stores_.size()); }
  CheckpointStore& writer() { return *stores_[0]; }
  CheckpointStore& store(int rank) { return *stores_[static_cast<std::size_t>(rank)]; }

  void prepare(std::int64_t step, Cut cut, std::int64_t scale = 1) {
    for (int rank = 0; rank < world(); ++rank) {
      const Shard shard{rank, world()};
      store(rank).prepare(ShardSample(step, cut, shard, scale).get(), shard);
    }
  }
  std::filesystem::path save(std::int64_t step, Cut cut, std::int64_t scale = 1) {
    prepare(step, cut, scale);
    return writer().commit(ShardSample(step, cut, {0, world()}).get().state, world());
  }

 private:
  std::vector<std::unique_ptr<CheckpointStore>> stores_;
};

}  // namespace dtrain::test
