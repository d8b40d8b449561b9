#include "runtime/onnx/values.h"

#include <fmt/format.h>

#include <algorithm>

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
      "export: a tensor {} {} with strides {} is read {}, which no ONNX operator gives; make it with "
      "reshape, transpose, slice, cat or contiguous()",
      name_of(view.dtype), view.shape.to_string(), view.strides.to_string(), what));
}

/// Where a view begins and ends in each dimension of memory reshaped for it.
struct Cut {
  Dims extents;  ///< memory's, as the view's steps divide it
  Extents begins, ends, axes;
  Dims lengths;
};

Cut cut_of(const std::vector<Axis>& axes, std::int64_t elements, std::int64_t offset, const View& view) {
  Cut cut;
  const auto add = [&](std::int64_t extent, std::int64_t begin, std::int64_t length) {
    if (begin + length > extent) refuse_view(view, "across the ends of rows");
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
    if (inside % axis.stride != 0) refuse_view(view, "in steps that do not divide its memory");
    add(inside / axis.stride, offset / axis.stride, axis.extent);
    offset %= axis.stride;
    inside = axis.stride;
  }
  if (inside > 1 || axes.empty()) add(inside, offset, 1);
  return cut;
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
    if (written.one_number && known.covers(range)) return {written.name, {}};
    if (is_same(written.view, view) || (is_dense(written.view) && known.covers(range)))
      return derive(written, view);
    Written whole;
    if (!join(written, whole)) refuse_view(view, "in pieces that were written one by one");
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
  const Cut cut = cut_of(axes, from.view.numel(), offset, view);
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

bool Values::join(const Written& newest, Written& whole) {
  for (int dim = 0; dim < newest.view.rank(); ++dim) {
    if (join_along(dim, newest, whole)) return true;
  }
  return false;
}

bool Values::join_along(int dim, const Written& newest, Written& whole) {
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
  if (!is_dense(all)) return false;
  for (const auto& [place, part] : parts) {
    note_use(part.name);
    names.push_back(part.one_number ? builder_.expand({part.name, {}}, part.view.shape).name : part.name);
  }
  whole = {all, builder_.node("Concat", std::move(names), {{"axis", std::int64_t{dim}}})};
  return true;
}

}  // namespace dtrain::onnx
