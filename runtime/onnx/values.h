// What memory holds while a network is traced: for each piece that a kernel wrote, the graph's tensor. Views
// (reshape, transpose, slice, …) are no kernels and leave no trace but in strides; reading through one is
// told from those, and becomes the nodes that give the same elements.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "runtime/onnx/builder.h"

namespace dtrain::onnx {

/// Memory that is added stays valid and is not handed out again as long as this lives.
class Values {
 public:
  /// Borrowed.
  explicit Values(Builder& builder) : builder_(builder) {}

  /// A weight or an input, dense in some order: it becomes part of the graph when it is read first.
  void define_weight(const std::string& name, const Tensor& weight);
  void define_input(const Port& port, const View& view);

  /// A piece of memory that was made while tracing: what lies in it may be one tensor, never more.
  void note_memory(const void* memory, std::size_t bytes);

  /// From now on `view` is this tensor, of its shape.
  void write(const View& view, std::string name);
  /// From now on each element of `view` is this tensor of one number.
  void fill(const View& view, std::string number);
  /// The host wrote `bytes` bytes there: no longer what kernels left.
  void forget(const void* memory, std::size_t bytes);
  /// Whether something there was computed from an input.
  bool is_computed(const void* memory) const;

  /// The tensor that a kernel sees through `view`. Broadcast dimensions (stride 0) have an extent of 1, and
  /// what was filled with one number is a number: operators broadcast. Throws UsageError for a view that no
  /// ONNX nodes can be told for.
  Value read(const View& view);
  /// The same, of the whole shape of the view.
  std::string read_whole(const View& view);

 private:
  struct Written {
    View view;
    std::string name;
    bool one_number = false;
  };
  struct Range {
    const char *begin, *end;
    bool overlaps(const Range& other) const { return begin < other.end && other.begin < end; }
    bool covers(const Range& other) const { return begin <= other.begin && other.end <= end; }
  };
  static Range range_of(const View& view);
  Range memory_around(const View& view) const;
  static bool is_dense(const View& view);
  static bool is_same(const View& a, const View& b);

  void put(Written written);
  void note_use(const std::string& name);
  Value derive(const Written& from, const View& view);
  Value in_memory_order(const Written& from);
  Value gather(const Written& from, const View& view, std::int64_t offset);
  /// The tensor that `newest` and other pieces make, where they tile one that holds `range`.
  bool join(const Written& newest, const Range& range, Written& whole);
  bool join_along(int dim, const Written& newest, const Range& range, Written& whole);
  bool border(const Written& newest, std::size_t before, Written& whole);

  Builder& builder_;
  std::vector<Written> written_;               ///< oldest first; what was covered since is gone
  std::map<const char*, std::size_t> memory_;  ///< pieces by where they begin: their bytes
  std::map<std::string, Tensor> weights_;
  std::map<std::string, Port> inputs_;
};

}  // namespace dtrain::onnx
