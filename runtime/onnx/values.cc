#include "runtime/onnx/values.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "runtime/base/error.h"

namespace dtrain::onnx {
namespace {

std::int64_t bytes_between(const void* from, const void* to) {
  return static_cast<const char*>(to) - static_cast<const char*>(from);
}

/// A dimension of a view that moves through memory.
struct Axis {
  std::int64_t extent, stride;
  int dim;
};

/// Those of `view`, widest steps first.
std::vector<Axis> axes_of(const View& view) {
  std::vector<Axis> axes;
  for (int dim = 0; dim < view.rank(); ++dim) {
    if (view.shape[dim] > 1 && view.strides[dim] != 0)
      axes.push_back({view.shape[dim], view.strides[dim], dim});
  }
  std::stable_sort(axes.begin(), axes.end(),
                   [](const Axis& a, const Axis& b) { return a.stride > b.stride; });
  return axes;
}

[[noreturn]] void refuse_view(const View& view, const char* what) {
  throw UsageError(fmt::format(
      "export: a tensor {} {} with strides {} is read {}, which no ONNX operator can express; make it with "
      "reshape, transpose, slice, cat or contiguous()",
      name_of(view.dtype), view.shape.to_string(), view.strides.to_string(), what));
}

/// Where a view begins and ends in each dimension of memory reshaped for it.
struct Cut {
  Dims extents;  ///< memory's, as the view's steps divide it
  Extents begins, ends, axes;
  Dims lengths;
};

/// Nothing where rows are read beyond their ends, or in steps that do not divide memory.
std::optional<Cut> cut_of(const std::vector<Axis>& axes, std::int64_t elements, std::int64_t offset) {
  Cut cut;
  bool fits = true;
  const auto add = [&](std::int64_t extent, std::int64_t begin, std::int64_t length) {
    fits = fits && begin >= 0 && begin + length <= extent;
    if (length < extent) {
      cut.axes.push_back(cut.extents.rank());
      cut.begins.push_back(begin);
      cut.ends.push_back(begin + length);
    }
    cut.extents.push_back(extent);
    cut.lengths.push_back(length);
  };
  std::int64_t inside = elements;
  for (const Axis& axis : axes) {
    fits = fits && inside % axis.stride == 0;
    add(inside / axis.stride, offset / axis.stride, axis.extent);
    offset %= axis.stride;
    inside = axis.stride;
  }
  if (inside > 1 || axes.empty()) add(inside, offset, 1);
  if (!fits) return std::nullopt;
  return cut;
}

/// Where `inside` begins in each dimension of `all`, whose strides it has; nothing where it is not in it.
std::optional<Extents> begins_in(const View& all, const View& inside) {
  if (all.strides != inside.strides) return std::nullopt;
  std::int64_t offset = bytes_between(all.data, inside.data) / static_cast<std::int64_t>(size_of(all.dtype));
  std::vector<Axis> axes = axes_of(all);
  Extents begins(static_cast<std::size_t>(all.rank()));
  for (const Axis& axis : axes) {
    begins[static_cast<std::size_t>(axis.dim)] = offset / axis.stride;
    offset %= axis.stride;
  }
  for (int dim = 0; dim < all.rank(); ++dim) {
    const std::int64_t begin = begins[static_cast<std::size_t>(dim)];
    if (begin < 0 || begin + inside.shape[dim] > all.shape[dim]) return std::nullopt;
  }
  if (offset != 0) return std::nullopt;
  return begins;
}

/// The places of `view`'s elements from dimension `dim` on, in row-major order, behind `places`.
void append_places(const View& view, int dim, std::int64_t at, std::vector<std::int64_t>& places) {
  if (dim == view.rank()) return places.push_back(at);
  for (std::int64_t i = 0; i < view.shape[dim]; ++i)
    append_places(view, dim + 1, at + i * view.strides[dim], places);
}

}  // namespace

Values::Range Values::range_of(const View& view) {
  std::int64_t last = 0;
  for (int dim = 0; dim < view.rank(); ++dim) last += (view.shape[dim] - 1) * view.strides[dim];
  const auto* const begin = view.as<const char>();
  return {begin, begin + (last + 1) * static_cast<std::int64_t>(size_of(view.dtype))};
}

void Values::note_memory(const void* memory, std::size_t bytes) {
  memory_[static_cast<const char*>(memory)] = bytes;
}

Values::Range Values::memory_around(const View& view) const {
  const auto after = memory_.upper_bound(view.as<const char>());
  if (after == memory_.begin()) return range_of(view);
  const auto& [begin, bytes] = *std::prev(after);
  const Range around{begin, begin + bytes};
  return around.covers(range_of(view)) ? around : range_of(view);
}

bool Values::is_dense(const View& view) {
  std::int64_t expected = 1;
  const std::vector<Axis> axes = axes_of(view);
  for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) {
    if (axis->stride != expected) return false;
    expected *= axis->extent;
  }
  return expected == view.numel();
}

bool Values::is_same(const View& a, const View& b) {
  if (a.data != b.data || a.dtype != b.dtype || a.shape != b.shape) return false;
  for (int dim = 0; dim < a.rank(); ++dim) {
    if (a.shape[dim] > 1 && a.strides[dim] != b.strides[dim]) return false;
  }
  return true;
}

void Values::define_weight(const std::string& name, const Tensor& weight) {
  const bool known = std::any_of(written_.begin(), written_.end(), [&](const Written& written) {
    return is_same(written.view, weight.view());  // tied: the first name is its name
  });
  if (known || weight.numel() == 0) return;
  weights_.emplace(name, weight);
  put({weight.view(), name});
}

void Values::define_input(const Port& port, const View& view) {
  inputs_.emplace(port.name, port);
  put({view, port.name});
}

void Values::put(Written written) {
  if (is_dense(written.view)) {
    const Range range = range_of(written.view);
    std::erase_if(written_, [&](const Written& old) { return range.covers(range_of(old.view)); });
  }
  written_.push_back(std::move(written));
}

void Values::write(const View& view, std::string name) { put({view, std::move(name)}); }

void Values::fill(const View& view, std::string number) { put({view, std::move(number), true}); }

void Values::forget(const void* memory, std::size_t bytes) {
  const auto* const begin = static_cast<const char*>(memory);
  const Range range{begin, begin + bytes};
  std::erase_if(written_, [&](const Written& old) { return range.overlaps(range_of(old.view)); });
}

bool Values::is_computed(const void* memory) const {
  const auto* const at = static_cast<const char*>(memory);
  return std::any_of(written_.begin(), written_.end(), [&](const Written& written) {
    const Range range = range_of(written.view);
    return range.begin <= at && at < range.end && !written.one_number && !weights_.contains(written.name);
  });
}

void Values::note_use(const std::string& name) {
  if (const auto weight = weights_.find(name); weight != weights_.end()) {
    auto& used = builder_.graph().weights;
    const auto same = [&](const auto& each) { return each.first == name; };
    if (std::none_of(used.begin(), used.end(), same)) used.emplace_back(*weight);
  } else if (const auto input = inputs_.find(name); input != inputs_.end()) {
    auto& used = builder_.graph().inputs;
    const auto same = [&](const Port& each) { return each.name == name; };
    if (std::none_of(used.begin(), used.end(), same)) used.push_back(input->second);
  }
}

Value Values::read(const View& given) {
  View view = given;
  for (int dim = 0; dim < view.rank(); ++dim) {
    if (view.strides[dim] == 0) view.shape[dim] = 1;
  }
  const Range range = range_of(view);
  for (std::size_t i = written_.size(); i-- > 0;) {
    const Written written = written_[i];
    const Range known = range_of(written.view);
    if (!known.overlaps(range)) continue;
    if (written.view.dtype != view.dtype) refuse_view(view, "as another dtype than it was written in");
    const bool holds = is_same(written.view, view) || (is_dense(written.view) && known.covers(range));
    if (written.one_number && (holds || begins_in(written.view, view))) return {written.name, {}};
    if (holds) return derive(written, view);
    Written whole;
    if (!join(written, range, whole) && !border(written, i, whole))
      refuse_view(view, "in pieces that were written one by one");
    put(whole);
    return derive(whole, view);
  }
  return {builder_.constant(view), view.shape};
}

std::string Values::read_whole(const View& view) { return builder_.expand(read(view), view.shape).name; }

Value Values::in_memory_order(const Written& from) {
  std::vector<int> order;
  for (const Axis& axis : axes_of(from.view)) order.push_back(axis.dim);
  for (int dim = 0; dim < from.view.rank(); ++dim) {
    if (from.view.shape[dim] == 1)
      order.insert(order.begin() + std::min<int>(dim, static_cast<int>(order.size())), dim);
  }
  return builder_.transpose({from.name, from.view.shape}, order);
}

Value Values::derive(const Written& from, const View& view) {
  note_use(from.name);
  if (is_same(from.view, view)) return {from.name, view.shape};
  const std::vector<Axis> axes = axes_of(view);
  const std::int64_t offset =
      bytes_between(from.view.data, view.data) / static_cast<std::int64_t>(size_of(view.dtype));
  const std::optional<Cut> found = cut_of(axes, from.view.numel(), offset);
  if (!found) return gather(from, view, offset);
  const Cut& cut = *found;
  std::vector<int> order;  // from the steps' order to the view's
  for (int place = 0; place < view.rank(); ++place) {
    for (std::size_t i = 0; i < axes.size(); ++i) {
      if (axes[i].dim == place) order.push_back(static_cast<int>(i));
    }
  }
  for (int i = static_cast<int>(order.size()); i < cut.extents.rank(); ++i) order.push_back(i);
  Value value = in_memory_order(from);
  const bool plain = cut.axes.empty() && std::is_sorted(order.begin(), order.end());
  if (plain) return builder_.reshape(value, view.shape);
  value = builder_.reshape(value, cut.extents);
  if (!cut.axes.empty()) {
    value = {builder_.node("Slice", {value.name, builder_.sizes(cut.begins), builder_.sizes(cut.ends),
                                     builder_.sizes(cut.axes)}),
             cut.lengths};
  }
  return builder_.reshape(builder_.transpose(value, order), view.shape);
}

// Windows that overlap: within a sample, each element by its place.
Value Values::gather(const Written& from, const View& view, std::int64_t offset) {
  const View& memory = from.view;
  const std::int64_t samples = memory.rank() > 0 ? memory.shape[0] : 0;
  const std::int64_t inner = samples > 0 ? memory.numel() / samples : 0;
  const bool by_sample = view.rank() > 0 && memory.is_contiguous() && view.shape[0] == samples &&
                         (samples == 1 || view.strides[0] == inner);
  std::vector<std::int64_t> places;
  if (by_sample) append_places(view, 1, offset, places);
  const bool inside = std::all_of(places.begin(), places.end(),
                                  [&](std::int64_t place) { return place >= 0 && place < inner; });
  if (!by_sample || !inside) refuse_view(view, "in steps that do not divide its memory");
  const auto count = static_cast<std::int64_t>(places.size());
  const Value rows = builder_.reshape({from.name, memory.shape}, {samples, inner});
  const std::string index = builder_.constant({places.data(), DType::i64, {count}, {1}});
  const std::string picked = builder_.node("Gather", {rows.name, index}, {{"axis", std::int64_t{1}}});
  return builder_.reshape({picked, {samples, count}}, view.shape);
}

bool Values::join(const Written& newest, const Range& range, Written& whole) {
  for (int dim = 0; dim < newest.view.rank(); ++dim) {
    if (join_along(dim, newest, range, whole)) return true;
  }
  return false;
}

// What was filled with one number and then written inside has that number as its border.
bool Values::border(const Written& newest, std::size_t before, Written& whole) {
  const View& inside = newest.view;
  for (std::size_t i = before; i-- > 0;) {
    const Written filled = written_[i];
    if (!range_of(filled.view).overlaps(range_of(inside))) continue;
    const View& all = filled.view;
    if (!filled.one_number || newest.one_number || !all.is_contiguous()) return false;
    const std::optional<Extents> begins = begins_in(all, inside);
    if (!begins) return false;
    Extents before_and_after = *begins;
    for (int dim = 0; dim < all.rank(); ++dim)
      before_and_after.push_back(all.shape[dim] - (*begins)[static_cast<std::size_t>(dim)] -
                                 inside.shape[dim]);
    note_use(newest.name);
    whole = {all, builder_.node("Pad", {newest.name, builder_.sizes(before_and_after), filled.name})};
    return true;
  }
  return false;
}

bool Values::join_along(int dim, const Written& newest, const Range& range, Written& whole) {
  const View& model = newest.view;
  const std::int64_t step = model.strides[dim] * static_cast<std::int64_t>(size_of(model.dtype));
  if (step == 0) return false;
  std::map<std::int64_t, Written> parts;  // by the place along `dim`, of the newest
  const Range memory = memory_around(model);
  for (const Written& written : written_) {
    View like = written.view;
    if (!memory.covers(range_of(like))) continue;
    if (like.rank() != model.rank() || like.dtype != model.dtype || like.strides != model.strides) continue;
    const std::int64_t distance = bytes_between(model.data, like.data);
    like.shape[dim] = model.shape[dim];
    if (like.shape == model.shape && distance % step == 0) parts.insert_or_assign(distance / step, written);
  }
  std::int64_t at = parts.begin()->first;
  View all = model;
  all.data = parts.begin()->second.view.data;
  all.shape[dim] = 0;
  std::vector<std::string> names;
  for (const auto& [place, part] : parts) {
    if (place != at) return false;
    at += part.view.shape[dim];
    all.shape[dim] += part.view.shape[dim];
  }
  if (!is_dense(all) || !range_of(all).covers(range)) return false;
  for (const auto& [place, part] : parts) {
    note_use(part.name);
    names.push_back(part.one_number ? builder_.expand({part.name, {}}, part.view.shape).name : part.name);
  }
  whole = {all, builder_.node("Concat", std::move(names), {{"axis", std::int64_t{dim}}})};
  return true;
}

}  // namespace dtrain::onnx
