#include "models/text/lora.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>

#include "parallel/functional.h"
#include "runtime/autograd/grad_mode.h"
#include "runtime/autograd/ops.h"
#include "runtime/autograd/ops/joining.h"
#include "runtime/base/error.h"

namespace dtrain {
namespace {

constexpr std::int64_t kMostRank = 4096;
constexpr std::array<std::string_view, 8> kLayers = {"q", "k", "v", "qkv", "o", "gate", "up", "down"};

[[noreturn]] void refuse(std::string_view text, std::string_view expected) {
  throw UsageError(fmt::format("lora: expected {}, as in rank=8,alpha=16,on=q+v, got '{}'", expected, text));
}

std::vector<std::string> pieces(std::string_view text, char separator) {
  std::vector<std::string> found;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    found.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return found;
}

double number_in(std::string_view text) {
  double value = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failed != std::errc() || end != text.data() + text.size() || !std::isfinite(value) || value <= 0)
    refuse(text, "numbers above 0");
  return value;
}

/// Adapters of one block: "blocks.0." → "q" → {a, b}.
struct Pair {
  Tensor a, b;
};
using Adapters = std::map<std::string, std::map<std::string, Pair>>;

constexpr std::string_view kPrefix = "lora_";

/// Whether `name` is an adapter's parameter; then sorts it in.
bool sort_in(const std::string& name, const Tensor& tensor, Adapters& adapters) {
  const std::size_t at = name.find(kPrefix);
  if (at == std::string::npos) return false;
  const std::size_t dot = name.find('.', at);
  Pair& pair = adapters[name.substr(0, at)][name.substr(at + kPrefix.size(), dot - at - kPrefix.size())];
  (name.ends_with(".a") ? pair.a : pair.b) = tensor;
  return true;
}

/// The values that `a` begins with.
Tensor drawn(std::int64_t rank, std::int64_t in, Generator& generator,
             const std::shared_ptr<Device>& device) {
  const auto bound = static_cast<float>(1 / std::sqrt(static_cast<double>(in)));
  return Tensor::rand({rank, in}, generator, device, -bound, bound);
}

Tensor product(const Pair& pair, double scale) { return mul(matmul(pair.b, pair.a), scale); }

/// What is added to the weight of `layer` ("qkv", "proj", …); undefined where nothing is.
Tensor update_of(const std::map<std::string, Pair>& adapters, std::string_view layer, double scale,
                 const HeadShape& heads) {
  const std::string own = layer == "proj" ? "o" : std::string(layer);
  if (const auto found = adapters.find(own); found != adapters.end()) return product(found->second, scale);
  if (layer != "qkv") return {};
  const auto transposed = [&](const char* name) {
    const auto found = adapters.find(name);
    return found == adapters.end() ? Tensor() : product(found->second, scale).transpose(0, 1).unsqueeze(0);
  };
  const Tensor q = transposed("q"), k = transposed("k"), v = transposed("v");
  if (!q.defined() && !k.defined() && !v.defined()) return {};
  return fuse_heads(q, k, v, heads).squeeze(0).transpose(0, 1);
}

}  // namespace

bool LoraOptions::has(std::string_view layer) const { return std::ranges::find(on, layer) != on.end(); }

LoraOptions parse_lora(std::string_view text) {
  std::map<std::string, std::string> given;
  for (const std::string& piece : pieces(text, ',')) {
    const std::size_t equals = piece.find('=');
    const std::string key = piece.substr(0, equals);
    const bool known = key == "rank" || key == "alpha" || key == "on";
    if (equals == std::string::npos || !known || !given.emplace(key, piece.substr(equals + 1)).second)
      refuse(text, "rank=N, alpha=X and on=LAYERS, each once");
  }
  LoraOptions options;
  if (given.contains("rank")) {
    const double rank = number_in(given["rank"]);
    if (rank != std::floor(rank) || rank > static_cast<double>(kMostRank))
      refuse(text, fmt::format("a whole rank of at most {}", kMostRank));
    options.rank = static_cast<std::int64_t>(rank);
  }
  options.alpha = given.contains("alpha") ? number_in(given["alpha"]) : static_cast<double>(options.rank);
  if (!given.contains("on")) refuse(text, "on=, the layers that get adapters");
  options.on = pieces(given["on"], '+');
  for (const std::string& layer : options.on) {
    if (std::ranges::count(options.on, layer) > 1) refuse(text, "each layer of on= once");
    if (std::ranges::find(kLayers, layer) == kLayers.end())
      refuse(text, fmt::format("layers among {} in on=", fmt::join(kLayers, "+")));
  }
  if (options.has("qkv") && (options.has("q") || options.has("k") || options.has("v")))
    refuse(text, "qkv or some of q, k and v in on=");
  return options;
}

LoraAdapter::LoraAdapter(std::int64_t in, std::int64_t out, const LoraOptions& options, Generator& generator,
                         const std::shared_ptr<Device>& device)
    : scale_(options.scale()) {
  a_ = add_parameter("a", drawn(options.rank, in, generator, device));
  b_ = add_parameter("b", Tensor::zeros({out, options.rank}, device));
}

Tensor LoraAdapter::forward(const Tensor& x) { return mul(linear(linear(x, a_, {}), b_, {}), scale_); }

SplitLoraAdapter::SplitLoraAdapter(std::int64_t in, std::int64_t out, const LoraOptions& options,
                                   Generator& generator, const std::shared_ptr<Device>& device,
                                   const TensorParallelGroup& tp_group, SplitFeatures split,
                                   std::string label)
    : SplitModule(tp_group.group),
      scale_(options.scale()),
      split_features_(split),
      sequence_(tp_group.sequence),
      label_(std::move(label)) {
  const Tensor a = drawn(options.rank, in, generator, device), b = Tensor::zeros({out, options.rank}, device);
  const bool outputs = split == SplitFeatures::outputs;
  a_ = outputs ? add_parameter("a", a) : add_slice("SplitLoraAdapter", "a", a, 1);
  b_ = outputs ? add_slice("SplitLoraAdapter", "b", b, 0) : add_parameter("b", b);
}

/// A matrix that all ranks have, each for its part of a sequence that is cut.
Tensor SplitLoraAdapter::whole(const Tensor& matrix) const {
  return sequence_ ? copy_to_ranks(matrix, group(), label_ + " matrix") : matrix;
}

// What crosses the ranks is the narrow product in the middle.
Tensor SplitLoraAdapter::forward(const Tensor& x) {
  if (split_features_ == SplitFeatures::outputs) {
    const Tensor h = linear(x, whole(a_), {});
    const Tensor all = sequence_ ? all_gather(h, 1, group(), label_) : copy_to_ranks(h, group(), label_);
    return mul(linear(all, b_, {}), scale_);
  }
  const Tensor part = linear(x, a_, {});
  const Tensor h = sequence_ ? reduce_scatter(part, 1, group(), label_) : all_reduce(part, group(), label_);
  return mul(linear(h, whole(b_), {}), scale_);
}

Tensor fuse_heads(const Tensor& query, const Tensor& key, const Tensor& value, const HeadShape& shape) {
  const Tensor& like = query.defined() ? query : key.defined() ? key : value;
  const std::int64_t batch = like.size(0), length = like.size(1), group = shape.heads / shape.kv_heads;
  const auto part = [&](const Tensor& x, std::int64_t slots) {
    const Dims dims{batch, length, shape.kv_heads, slots, shape.head_width};
    return x.defined() ? x.reshape(dims) : Tensor::zeros(dims, like.shared_device(), like.dtype());
  };
  return cat({part(query, group), part(key, 1), part(value, 1)}, 3)
      .reshape({batch, length, shape.fused_width()});
}

bool is_adapter(std::string_view name) { return name.find(kPrefix) != std::string_view::npos; }

NamedTensors merge_adapters(const NamedTensors& state, const LoraOptions& options, const HeadShape& heads) {
  const NoGrad no_grad;
  Adapters adapters;
  NamedTensors merged;
  for (const auto& [name, tensor] : state) {
    if (!sort_in(name, tensor, adapters)) merged.emplace_back(name, tensor);
  }
  for (auto& [name, tensor] : merged) {
    constexpr std::string_view kWeight = ".weight";
    const std::size_t layer =
        name.ends_with(kWeight) ? name.rfind('.', name.size() - kWeight.size() - 1) : std::string::npos;
    if (layer == std::string::npos) continue;
    const auto block = adapters.find(name.substr(0, layer + 1));
    if (block == adapters.end()) continue;
    const std::string own = name.substr(layer + 1, name.size() - kWeight.size() - layer - 1);
    const Tensor update = update_of(block->second, own, options.scale(), heads);
    if (update.defined()) tensor = add(tensor, update.to(tensor.dtype()));
  }
  return merged;
}

}  // namespace dtrain
