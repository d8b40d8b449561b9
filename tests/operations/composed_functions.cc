// The operations that are composed of others: operators, reductions, masks, einsum, forms of losses.
#include <cmath>

#include "runtime/autograd/ops/convolutions.h"
#include "runtime/autograd/ops/einsum.h"
#include "runtime/autograd/ops/indexing.h"
#include "runtime/autograd/ops/losses.h"
#include "runtime/autograd/ops/masks.h"
#include "runtime/autograd/ops/norms.h"
#include "runtime/autograd/ops/patches.h"
#include "runtime/autograd/ops/pooling.h"
#include "runtime/autograd/ops/products.h"
#include "runtime/autograd/ops/reductions.h"
#include "runtime/autograd/ops/resampling.h"
#include "tests/operations/operations.h"

namespace dtrain::test {
namespace {

Results picked(const Sorted& chosen) { return {{"y", chosen.values}, {"indices", chosen.indices}}; }

void add_operators(Table& table) {
  table["number_sub"] = {[](const Case& c) { return y(c.any_number("number") - c.tensor("x")); }};
  table["number_div"] = {[](const Case& c) { return y(c.any_number("number") / c.tensor("x")); }};
  table["not_equal"] = {[](const Case& c) { return y(not_equal(c.tensor("a"), c.tensor("b"))); }};
  table["less_equal"] = {[](const Case& c) { return y(less_equal(c.tensor("a"), c.tensor("b"))); }};
  // All six beside a tensor, and beside a number.
  table["comparisons"] = {[](const Case& c) {
    const Tensor a = c.tensor("a"), b = c.tensor("b");
    return several({a == b, a != b, a > b, a >= b, a < b, a <= b});
  }};
  table["comparisons_number"] = {[](const Case& c) {
    const Tensor x = c.tensor("x");
    const Number n = c.any_number("number");
    return several({x == n, n != x, x > n, n >= x, x < n, n <= x});
  }};
}

void add_more_reductions(Table& table) {
  table["var"] = {[](const Case& c) {
    return y(var(c.tensor("x"), c.dims("dims"), c.number("correction", 1), c.flag("keep")));
  }};
  table["std"] = {[](const Case& c) {
    return y(std(c.tensor("x"), c.dims("dims"), c.number("correction", 1), c.flag("keep")));
  }};
  table["norm"] = {[](const Case& c) {
    const double order = c.number("order", 2) * (c.flag("infinite") ? INFINITY : 1);
    return y(norm(c.tensor("x"), order, c.dims("dims"), c.flag("keep")));
  }};
  table["logsumexp"] = {
      [](const Case& c) { return y(logsumexp(c.tensor("x"), c.dims("dims"), c.flag("keep"))); }};
  table["prod"] = {[](const Case& c) {
    if (const auto dim = c.maybe_integer("dim"))
      return y(prod(c.tensor("x"), static_cast<int>(*dim), c.flag("keep")));
    return y(prod(c.tensor("x")));
  }};
  table["max"] = {[](const Case& c) { return picked(max(c.tensor("x"), dim_of(c), c.flag("keep"))); }};
  table["min"] = {[](const Case& c) { return picked(min(c.tensor("x"), dim_of(c), c.flag("keep"))); }};
  table["argmin"] = {[](const Case& c) { return y(argmin(c.tensor("x"), dim_of(c, -1), c.flag("keep"))); }};
}

void add_masks(Table& table) {
  table["isnan"] = {[](const Case& c) { return y(isnan(c.tensor("x"))); }};
  table["isinf"] = {[](const Case& c) { return y(isinf(c.tensor("x"))); }};
  table["isfinite"] = {[](const Case& c) { return y(isfinite(c.tensor("x"))); }};
  table["masked_fill"] = {[](const Case& c) {
    return y(masked_fill(c.tensor("x"), c.tensor("mask") != 0, c.any_number("value")));
  }};
  table["tril"] = {[](const Case& c) { return y(tril(c.tensor("x"), c.integer("diagonal", 0))); }};
  table["triu"] = {[](const Case& c) { return y(triu(c.tensor("x"), c.integer("diagonal", 0))); }};
}

void add_rearranging(Table& table) {
  table["flip"] = {[](const Case& c) { return y(flip(c.tensor("x"), c.dims("dims"))); }};
  table["roll"] = {[](const Case& c) { return y(roll(c.tensor("x"), c.dims("shifts"), c.dims("dims"))); }};
  table["one_hot"] = {
      [](const Case& c) { return y(one_hot(c.tensor("index"), c.maybe_integer("classes"))); }};
  table["einsum"] = {[](const Case& c) {
    Tensors tensors;
    for (const char* const name : {"a", "b", "c"}) {
      if (c.tensor(name).defined()) tensors.push_back(c.tensor(name));
    }
    return y(einsum(c.text("pattern"), tensors));
  }};
}

void add_forms_of_losses(Table& table) {
  table["cross_entropy_options"] = {[](const Case& c) {
    const CrossEntropyOptions options{.reduction = reduction_of(c),
                                      .ignore_index = c.maybe_integer("ignore"),
                                      .label_smoothing = c.number("smoothing", 0),
                                      .weight = c.tensor("weight")};
    return y(cross_entropy(c.tensor("x"), c.tensor("target"), options));
  }};
  table["kl_div"] = {[](const Case& c) {
    return y(kl_div(c.tensor("a"), c.tensor("b"), reduction_of(c), c.flag("log_target")));
  }};
  table["pos_weight"] = {[](const Case& c) {
    return y(binary_cross_entropy_with_logits(c.tensor("a"), c.tensor("b"), reduction_of(c),
                                              c.tensor("pos_weight")));
  }};
}

Results interpolate_case(const Case& c) {
  const auto scale = c.dims("scale", {});
  InterpolateOptions options{.size = c.dims("size", {}),
                             .mode = c.flag("linear")  ? InterpolateMode::linear
                                     : c.flag("cubic") ? InterpolateMode::bicubic
                                                       : InterpolateMode::nearest,
                             .align_corners = c.flag("align_corners")};
  if (c.maybe_number("factor")) options.scale = {c.number("factor", 1)};
  for (const std::int64_t factor : scale) options.scale.push_back(static_cast<double>(factor));
  return y(interpolate(c.tensor("x"), options));
}

Results pool3d_case(const Case& c) {
  const Dims kernel = c.dims("kernel", {2, 2, 2}), stride = c.dims("pool_stride", kernel),
             pad = c.dims("pool_padding", {0, 0, 0});
  return y(pool3d(c.tensor("x"), {c.flag("max") ? PoolKind::max : PoolKind::avg, kernel[0], kernel[1],
                                  kernel[2], stride[0], stride[1], stride[2], pad[0], pad[1], pad[2]}));
}

PatchGeometry patches_of(const Case& c) {
  const Dims kernel = c.dims("kernel"), stride = c.dims("patch_stride", {1, 1}),
             pad = c.dims("patch_padding", {0, 0}), dilation = c.dims("patch_dilation", {1, 1});
  return {kernel[0], kernel[1], stride[0], stride[1], pad[0], pad[1], dilation[0], dilation[1]};
}

void add_patches(Table& table) {
  table["unfold"] = {[](const Case& c) { return y(unfold(c.tensor("x"), patches_of(c))); }};
  table["fold"] = {[](const Case& c) {
    const Dims size = c.dims("size");
    return y(fold(c.tensor("x"), size[0], size[1], patches_of(c)));
  }};
  table["grid_sample"] = {[](const Case& c) {
    return y(grid_sample(c.tensor("x"), c.tensor("grid"),
                         {.mode = c.flag("nearest") ? SampleMode::nearest : SampleMode::bilinear,
                          .padding = c.flag("border") ? SamplePadding::border : SamplePadding::zeros,
                          .align_corners = c.flag("align_corners")}));
  }};
  const auto product = [&table](const char* name, auto function) {
    table[name] = {[function](const Case& c) {
      return y(
          function(c.tensor("x"), c.tensor("a"), c.tensor("b"), c.number("beta", 1), c.number("alpha", 1)));
    }};
  };
  product("addmm", addmm);
  product("baddbmm", baddbmm);
  product("addmv", addmv);
}

void add_mixtures(Table& table) {
  const auto mixture = [&table](const char* name,
                                Tensor (*function)(const Tensor&, const Tensor&, const Tensor&, Number)) {
    table[name] = {[function](const Case& c) {
      return y(function(c.tensor("x"), c.tensor("a"), c.tensor("b"), c.number("value", 1)));
    }};
  };
  mixture("addcmul", addcmul);
  mixture("addcdiv", addcdiv);
  table["lerp"] = {[](const Case& c) {
    const Tensor weight = c.tensor("weight");
    if (weight.defined()) return y(lerp(c.tensor("a"), c.tensor("b"), weight));
    return y(lerp(c.tensor("a"), c.tensor("b"), c.number("share", 0.5)));
  }};
}

/// Windows, borders and groups of channels.
void add_windows(Table& table) {
  table["group_norm"] = {[](const Case& c) {
    return y(group_norm(c.tensor("x"), c.integer("groups", 1), c.tensor("weight"), c.tensor("bias"),
                        c.number("eps", 1e-5)));
  }};
  table["instance_norm"] = {
      [](const Case& c) { return y(instance_norm(c.tensor("x"), c.tensor("weight"), c.tensor("bias"))); }};
  table["pad_mode"] = {[](const Case& c) {
    const PadMode modes[] = {PadMode::constant, PadMode::reflect, PadMode::replicate, PadMode::circular};
    return y(pad(c.tensor("x"), c.dims("amounts"), modes[c.integer("mode", 0)]));
  }};
  table["interpolate"] = {interpolate_case};
  table["pool1d"] = {[](const Case& c) {
    const std::int64_t kernel = c.integer("kernel", 2);
    return y(pool1d(c.tensor("x"), {c.flag("max") ? PoolKind::max : PoolKind::avg, kernel,
                                    c.integer("pool_stride", kernel), c.integer("pool_padding", 0)}));
  }};
  table["pool3d"] = {pool3d_case};
  table["max_pool"] = {[](const Case& c) {
    return y(max_pool(c.tensor("x"), {c.dims("kernel"), c.dims("pool_stride", {}), c.dims("pool_padding", {}),
                                      c.dims("pool_dilation", {})}));
  }};
  table["adaptive_avg_pool1d"] = {
      [](const Case& c) { return y(adaptive_avg_pool1d(c.tensor("x"), c.integer("length", 1))); }};
  table["conv_transpose1d"] = {[](const Case& c) {
    return y(conv_transpose1d(
        c.tensor("x"), c.tensor("weight"), c.tensor("bias"),
        {c.integer("stride", 1), c.integer("padding", 0), c.integer("dilation", 1), c.integer("groups", 1)},
        c.integer("output_padding", 0)));
  }};
}

}  // namespace

void add_composed_functions(Table& table) {
  add_windows(table);
  add_patches(table);
  add_mixtures(table);
  add_operators(table);
  add_more_reductions(table);
  add_masks(table);
  add_rearranging(table);
  add_forms_of_losses(table);
}

}  // namespace dtrain::test
