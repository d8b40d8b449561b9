// torch/_tensor_str.py, rule by rule.
#include "runtime/tensor/print.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ostream>
#include <vector>

namespace dtrain {
namespace {

constexpr std::int64_t kEdge = 3, kThreshold = 1000, kColumns = 80;

/// How every element of a tensor is written: alike, and padded to one width.
class Format {
 public:
  Format(const std::vector<std::int64_t>& values, DType dtype) : truth_(dtype == DType::boolean) {
    for (const std::int64_t value : values) widen(text_of(value));
  }

  Format(const std::vector<double>& values, DType /*dtype*/) {
    double least = INFINITY, largest = 0;
    for (const double value : values) {
      if (!counts(value)) continue;
      least = std::min(least, std::abs(value));
      largest = std::max(largest, std::abs(value));
      whole_ = whole_ && value == std::ceil(value);
    }
    if (largest == 0) return;  // nothing to go by
    scientific_ = largest / least > 1000.0 || largest > 1e8 || least < 1e-4;
    for (const double value : values) {
      if (counts(value)) widen(text_of(value));
    }
  }

  std::int64_t width() const noexcept { return width_; }

  std::string operator()(std::int64_t value) const { return padded(text_of(value)); }
  std::string operator()(double value) const { return padded(text_of(value)); }

 private:
  static bool counts(double value) { return std::isfinite(value) && value != 0; }
  std::string text_of(std::int64_t value) const {
    return !truth_ ? fmt::format("{}", value) : value != 0 ? "True" : "False";
  }
  /// Whole numbers have no digits behind the point, which says that they are floating.
  std::string text_of(double value) const {
    if (std::isnan(value)) return "nan";  // of either sign
    if (scientific_) return fmt::format("{:.4e}", value);
    if (!whole_) return fmt::format("{:.4f}", value);
    return fmt::format("{:.0f}{}", value, std::isfinite(value) ? "." : "");
  }
  void widen(const std::string& text) { width_ = std::max(width_, static_cast<std::int64_t>(text.size())); }
  std::string padded(const std::string& text) const { return fmt::format("{:>{}}", text, width_); }

  bool whole_ = true, scientific_ = false, truth_ = false;
  std::int64_t width_ = 1;
};

/// Elements of a dense tensor and which of its dimensions lost their middle.
template <class T>
struct Elements {
  std::vector<T> values;
  Dims shape;
  bool summarised;
  Dims full_shape;

  bool is_cut(int dim) const { return summarised && full_shape[dim] > 2 * kEdge; }
};

/// The first and the last elements along each dimension that has more.
Tensor edges_of(Tensor tensor) {
  for (int dim = 0; dim < tensor.rank(); ++dim) {
    const std::int64_t extent = tensor.size(dim);
    if (extent <= 2 * kEdge) continue;
    Dims shape = tensor.shape();
    shape[dim] = 2 * kEdge;
    const Tensor ends = Tensor::empty(shape, tensor.shared_device(), tensor.dtype());
    ends.slice(dim, 0, kEdge).copy_from(tensor.slice(dim, 0, kEdge));
    ends.slice(dim, kEdge, 2 * kEdge).copy_from(tensor.slice(dim, extent - kEdge, extent));
    tensor = ends;
  }
  return tensor;
}

template <class T>
class Printer {
 public:
  Printer(Elements<T> elements, DType dtype)
      : elements_(std::move(elements)), format_(elements_.values, dtype) {}

  /// `dim` and those behind it, from element `begin` on.
  std::string text(int dim, std::int64_t begin, std::int64_t indent) const {
    const int left = elements_.shape.rank() - dim;
    if (left == 0) return format_(at(begin));
    if (left == 1) return row(begin, indent);
    const std::int64_t extent = elements_.shape[dim];
    const std::int64_t stride = contiguous_strides(elements_.shape)[dim];
    const std::string separator = fmt::format(",{:\n>{}}{:{}}", "", left - 1, "", indent + 1);
    std::string result = "[";
    for (std::int64_t i = 0; i < extent; ++i) {
      if (i > 0) result += separator;
      if (i == kEdge && elements_.is_cut(dim)) result += "..." + separator;
      result += text(dim + 1, begin + i * stride, indent + 1);
    }
    return result + "]";
  }

 private:
  T at(std::int64_t i) const { return elements_.values[static_cast<std::size_t>(i)]; }

  std::string row(std::int64_t begin, std::int64_t indent) const {
    const int last = elements_.shape.rank() - 1;
    std::vector<std::string> items;
    for (std::int64_t i = 0; i < elements_.shape[last]; ++i) {
      if (i == kEdge && elements_.is_cut(last)) items.emplace_back(" ...");
      items.push_back(format_(at(begin + i)));
    }
    // Python's floor division: a deep indent leaves a negative room.
    const std::int64_t room = std::max<std::int64_t>(kColumns - indent, 0) / (format_.width() + 2);
    const auto a_line = static_cast<std::size_t>(std::max<std::int64_t>(1, room));
    std::string result = "[";
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i > 0) result += i % a_line == 0 ? fmt::format(",\n{:{}}", "", indent + 1) : ", ";
      result += items[i];
    }
    return result + "]";
  }

  Elements<T> elements_;
  Format format_;
};

constexpr std::string_view kPrefix = "tensor(";

template <class T>
std::string contents(const Tensor& tensor) {
  const bool summarised = tensor.numel() > kThreshold;
  const Tensor shown = summarised ? edges_of(tensor) : tensor;
  return Printer<T>({shown.to_vector<T>(), shown.shape(), summarised, tensor.shape()}, tensor.dtype())
      .text(0, 0, static_cast<std::int64_t>(kPrefix.size()));
}

/// "(0, 3)"
std::string tuple_of(const Dims& shape) {
  const std::string list = shape.to_string();
  return fmt::format("({})", list.substr(1, list.size() - 2));
}

std::vector<std::string> suffixes_of(const Tensor& tensor) {
  std::vector<std::string> suffixes;
  const DType dtype = tensor.dtype();
  if (tensor.device().type() != DeviceType::cpu) {
    suffixes.push_back(fmt::format("device='{}'", tensor.device().name()));
  }
  if (tensor.numel() == 0 && tensor.rank() != 1) {
    suffixes.push_back(fmt::format("size={}", tuple_of(tensor.shape())));
  }
  // The elements show these dtypes where there are any.
  const bool shows = tensor.numel() > 0 && (dtype == DType::i64 || dtype == DType::boolean);
  if (dtype != DType::f32 && !shows) {
    suffixes.push_back(fmt::format("dtype=torch.{}", name_of(dtype)));
  }
  if (tensor.requires_grad() && tensor.is_leaf()) suffixes.emplace_back("requires_grad=True");
  return suffixes;
}

}  // namespace

std::string to_string(const Tensor& given) {
  if (!given.defined()) return "undefined";
  const Tensor tensor = given.detach();
  std::string text(kPrefix);
  if (tensor.numel() == 0) {
    text += "[]";
  } else {
    text += is_floating(tensor.dtype()) ? contents<double>(tensor) : contents<std::int64_t>(tensor);
  }
  // How PyTorch measures the last line: it counts two columns more than there are.
  const std::size_t newline = text.rfind('\n');
  std::size_t column = newline == std::string::npos ? text.size() + 2 : text.size() - newline + 1;
  for (const std::string& suffix : suffixes_of(given)) {
    const bool breaks = column + suffix.size() + 2 > static_cast<std::size_t>(kColumns);
    text += breaks ? fmt::format(",\n{:{}}{}", "", kPrefix.size(), suffix) : fmt::format(", {}", suffix);
    column = breaks ? kPrefix.size() + suffix.size() : column + suffix.size() + 2;
  }
  return text + ")";
}

std::ostream& operator<<(std::ostream& out, const Tensor& tensor) { return out << to_string(tensor); }

}  // namespace dtrain
