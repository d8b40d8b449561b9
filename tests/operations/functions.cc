// The operations of runtime/autograd/ops.h: arithmetic, reductions, products, windows, batch norm, and views.
#include "runtime/autograd/ops.h"

#include "tests/operations/operations.h"

namespace dtrain::test {
namespace {

Operation unary(Tensor (*function)(const Tensor&)) {
  return {[function](const Case& c) { return y(function(c.tensor("x"))); }};
}

Operation binary(Tensor (*function)(const Tensor&, const Tensor&)) {
  return {[function](const Case& c) { return y(function(c.tensor("a"), c.tensor("b"))); }};
}

Operation with_number(Tensor (*function)(const Tensor&, Number)) {
  return {[function](const Case& c) { return y(function(c.tensor("x"), c.any_number("number"))); }};
}

Operation over_dims(Tensor (*function)(const Tensor&, const Dims&, bool)) {
  return {[function](const Case& c) { return y(function(c.tensor("x"), c.dims("dims"), c.flag("keep"))); }};
}

Conv2dGeometry conv_geometry(const Case& c) {
  const Dims stride = c.dims("stride", {1, 1}), pad = c.dims("padding", {0, 0}),
             dilation = c.dims("dilation", {1, 1});
  return {stride[0], stride[1], pad[0], pad[1], dilation[0], dilation[1], c.integer("groups", 1)};
}

Pool2dGeometry pool_geometry(const Case& c) {
  const Dims kernel = c.dims("kernel", {2, 2}), stride = c.dims("pool_stride", kernel),
             pad = c.dims("pool_padding", {0, 0});
  return {c.flag("max") ? PoolKind::max : PoolKind::avg,
          kernel[0],
          kernel[1],
          stride[0],
          stride[1],
          pad[0],
          pad[1]};
}

Activation activation(const Case& c) { return c.flag("relu") ? Activation::relu : Activation::none; }

BatchNormRule norm_rule(const Case& c) {
  return {c.number("eps", 1e-5), c.number("momentum", 0.1), activation(c)};
}

/// The result, and statistics that moved: the memory around those that are a column of a matrix counts too.
Results with_statistics(const Case& c, const Tensor& result) {
  Results results = y(result);
  for (const char* const name : {"running_mean", "running_var"}) {
    if (c.tensor(name).defined()) results.emplace_back(name, c.base(name));
  }
  return results;
}

/// The other part of a batch that is spread over two workers: the same values again.
class Twin final : public BatchPeers {
 public:
  int size() const noexcept override { return 2; }
  void all_gather(const Tensor& mine, const Tensor& all) override {
    const NoGrad no_grad;
    for (std::int64_t i = 0; i < 2; ++i) all.select(0, i).copy_from(mine);
  }
  void add_up(const Tensor& values) override { Tensor(values).scale_in_place(2); }
};

Results batch_norm_case(const Case& c) {
  const std::shared_ptr<BatchPeers> peers = c.flag("peers") ? std::make_shared<Twin>() : nullptr;
  return with_statistics(
      c, batch_norm(c.tensor("x"), c.tensor("weight"), c.tensor("bias"), c.tensor("running_mean"),
                    c.tensor("running_var"), norm_rule(c), c.flag("training"), c.tensor("residual"), peers));
}

void add_elementwise(Table& table) {
  table["neg"] = unary(neg);
  table["abs"] = unary(abs);
  table["exp"] = unary(exp);
  table["log"] = unary(log);
  table["sqrt"] = unary(sqrt);
  table["rsqrt"] = unary(rsqrt);
  table["reciprocal"] = unary(reciprocal);
  table["square"] = unary(square);
  table["relu"] = unary(relu);
  table["sigmoid"] = unary(sigmoid);
  table["tanh"] = unary(tanh);
  table["gelu"] = unary(gelu);
  table["sin"] = unary(sin);
  table["cos"] = unary(cos);
  table["erf"] = unary(erf);
  table["expm1"] = unary(expm1);
  table["log1p"] = unary(log1p);
  table["floor"] = unary(floor);
  table["ceil"] = unary(ceil);
  table["round"] = unary(round);
  table["trunc"] = unary(trunc);
  table["sign"] = unary(sign);
  table["add_number"] = with_number(add);
  table["sub_number"] = with_number(sub);
  table["mul_number"] = with_number(mul);
  table["div_number"] = with_number(div);
  table["pow"] = with_number(pow);
  table["add"] = binary(add);
  table["sub"] = binary(sub);
  table["mul"] = binary(mul);
  table["div"] = binary(div);
  table["maximum"] = binary(maximum);
  table["minimum"] = binary(minimum);
  table["equal"] = binary(equal);
  table["greater"] = binary(greater);
  table["greater_equal"] = binary(greater_equal);
  table["less"] = binary(less);
  table["where"] = {
      [](const Case& c) { return y(where(c.tensor("condition"), c.tensor("a"), c.tensor("b"))); }};
}

void add_reductions(Table& table) {
  table["sum"] = over_dims(sum);
  table["mean"] = over_dims(mean);
  table["amax"] = over_dims(amax);
  table["amin"] = over_dims(amin);
  table["argmax"] = {[](const Case& c) { return y(argmax(c.tensor("x"), dim_of(c, -1), c.flag("keep"))); }};
  table["softmax"] = {[](const Case& c) { return y(softmax(c.tensor("x"), dim_of(c, -1))); }};
  table["log_softmax"] = {[](const Case& c) { return y(log_softmax(c.tensor("x"), dim_of(c, -1))); }};
  table["cross_entropy"] = {[](const Case& c) {
    return y(cross_entropy(c.tensor("x"), c.tensor("target"), reduction_of(c), c.maybe_integer("ignore")));
  }};
  table["mse_loss"] = {
      [](const Case& c) { return y(mse_loss(c.tensor("a"), c.tensor("b"), reduction_of(c))); }};
}

void add_windows(Table& table) {
  table["matmul"] = binary(matmul);
  table["linear"] = {[](const Case& c) {
    return y(linear(c.tensor("x"), c.tensor("weight"), c.tensor("bias"), activation(c)));
  }};
  table["conv2d"] = {[](const Case& c) {
    return y(conv2d(c.tensor("x"), c.tensor("weight"), c.tensor("bias"), conv_geometry(c), activation(c)));
  }};
  // Its input goes elsewhere, too: what comes back is added where the convolution's gradient is written.
  table["conv2d_shortcut"] = {[](const Case& c) {
    const Tensor x = mul(c.tensor("x"), 1.0);
    const Tensor convolved =
        conv2d(x, c.tensor("weight"), {}, conv_geometry(c));  // recorded first: back last
    return y(add(convolved, mul(x, 3.0)));
  }};
  table["pool2d"] = {[](const Case& c) { return y(pool2d(c.tensor("x"), pool_geometry(c))); }};
  table["max_pool2d"] = {[](const Case& c) { return y(max_pool2d(c.tensor("x"), c.integer("kernel", 2))); }};
  table["avg_pool2d"] = {[](const Case& c) { return y(avg_pool2d(c.tensor("x"), c.integer("kernel", 2))); }};
  table["conv2d_relu_pool2d"] = {[](const Case& c) {
    return y(conv2d_relu_pool2d(c.tensor("x"), c.tensor("weight"), c.tensor("bias"), conv_geometry(c),
                                pool_geometry(c)));
  }};
  table["adaptive_avg_pool2d"] = {[](const Case& c) {
    const Dims size = c.dims("size");
    return y(adaptive_avg_pool2d(c.tensor("x"), size[0], size[1]));
  }};
  table["batch_norm"] = {batch_norm_case};
}

/// What the views of an argument show, and in other orders.
void add_views(Table& table) {
  table["copy"] = {[](const Case& c) { return y(c.tensor("x").clone()); }};
  table["reshape"] = {[](const Case& c) { return y(reshape(c.tensor("x"), c.dims("shape"))); }};
  table["flatten"] = {[](const Case& c) { return y(flatten(c.tensor("x"), dim_of(c, 1))); }};
  table["sum_to"] = {[](const Case& c) { return y(c.tensor("x").sum_to(c.dims("shape"))); }};
  table["channels_last"] = {
      [](const Case& c) { return y(c.tensor("x").contiguous(MemoryFormat::channels_last)); }};
  table["index_select"] = {
      [](const Case& c) { return y(c.tensor("x").index_select(dim_of(c), c.tensor("index"))); }};
}

}  // namespace

void add_functions(Table& table) {
  add_elementwise(table);
  add_reductions(table);
  add_windows(table);
  add_views(table);
}

Results several(const std::vector<Tensor>& results) {
  static const char* const kNames[] = {"y", "z"};
  Results named;
  for (std::size_t i = 0; i < results.size(); ++i)
    named.emplace_back(i < 2 ? kNames[i] : "y" + std::to_string(i), results[i]);
  return named;
}

const Table& operations() {
  static const Table kTable = [] {
    Table table;
    add_functions(table);
    add_functions_of_layers(table);
    add_composed_functions(table);
    add_layers(table);
    add_updates(table);
    return table;
  }();
  return kTable;
}

}  // namespace dtrain::test
