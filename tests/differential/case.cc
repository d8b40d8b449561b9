#include "tests/differential/case.h"

#include <cstdio>
#include <cstdlib>

#include "runtime/autograd/grad_mode.h"
#include "runtime/base/error.h"

namespace dtrain::differential {
namespace {

using nlohmann::json;

Dims dims_of(const json& list) {
  Dims dims;
  for (const json& value : list) dims.push_back(value.get<std::int64_t>());
  return dims;
}

DType dtype_named(const std::string& name) {
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::i64}) {
    if (name_of(dtype) == name) return dtype;
  }
  throw Error("differential: unknown dtype " + name);
}

Tensor seen_through(const Tensor& tensor, const json& view) {
  const auto name = view[0].get<std::string>();
  const auto integer = [&view](std::size_t i) { return view[i].get<std::int64_t>(); };
  const auto dim = [&integer](std::size_t i) { return static_cast<int>(integer(i)); };
  if (name == "slice") return tensor.slice(dim(1), integer(2), integer(3), integer(4));
  if (name == "select") return tensor.select(dim(1), integer(2));
  if (name == "transpose") return tensor.transpose(dim(1), dim(2));
  if (name == "permute") return tensor.permute(dims_of(view[1]));
  if (name == "expand") return tensor.expand(dims_of(view[1]));
  if (name == "reshape") return tensor.reshape(dims_of(view[1]));
  if (name == "unsqueeze") return tensor.unsqueeze(dim(1));
  throw Error("differential: unknown view " + name);
}

/// `base` as the views of `given` show it.
Tensor viewed(Tensor base, const json& given) {
  for (const json& view : given.value("views", json::array())) base = seen_through(base, view);
  return base;
}

Tensor from_values(const std::string& text, const Dims& shape, DType dtype,
                   const std::shared_ptr<Device>& device) {
  if (dtype != DType::i64) return Tensor::from_data(parse_values(text), shape, device).to(dtype);
  std::vector<std::int64_t> values;
  const char* at = text.c_str();
  for (char* end = nullptr; *at != '\0'; at = end) {
    values.push_back(std::strtoll(at, &end, 10));
    while (*end == ' ') ++end;
  }
  return Tensor::from_data(values, shape, device);
}

}  // namespace

std::vector<double> parse_values(const std::string& text) {
  std::vector<double> values;
  const char* at = text.c_str();
  for (char* end = nullptr; *at != '\0'; at = end) {
    values.push_back(std::strtod(at, &end));
    if (end == at) throw Error("differential: not a number: " + std::string(at).substr(0, 20));
    while (*end == ' ') ++end;
  }
  return values;
}

Case::Case(const json& given, const std::shared_ptr<Device>& device) : json_(given), device_(device) {
  for (const auto& [name, tensor] : json_["tensors"].items()) {
    Argument argument;
    argument.base = made(tensor);
    if (tensor.value("grad", false)) argument.base.set_requires_grad(true);
    argument.used = viewed(argument.base, tensor);
    arguments_.emplace(name, std::move(argument));
  }
}

Tensor Case::made(const json& tensor) const {
  return from_values(tensor["values"], dims_of(tensor["shape"]), dtype_named(tensor["dtype"]), device_);
}

Tensor Case::tensor(const std::string& name) const {
  const auto found = arguments_.find(name);
  return found == arguments_.end() ? Tensor() : found->second.used;
}

Tensor Case::base(const std::string& name) const { return arguments_.at(name).base; }

std::int64_t Case::integer(const std::string& option, std::int64_t otherwise) const {
  return json_["options"].value(option, otherwise);
}

std::optional<std::int64_t> Case::maybe_integer(const std::string& option) const {
  if (!json_["options"].contains(option)) return std::nullopt;
  return json_["options"][option].get<std::int64_t>();
}

std::optional<Number> Case::maybe_number(const std::string& option) const {
  if (!json_["options"].contains(option)) return std::nullopt;
  return any_number(option);
}

Number Case::any_number(const std::string& option) const {
  const json& number = json_["options"].at(option);
  if (number.is_number_integer()) return number.get<std::int64_t>();
  return number.get<double>();
}

double Case::number(const std::string& option, double otherwise) const {
  return json_["options"].value(option, otherwise);
}

bool Case::flag(const std::string& option) const { return json_["options"].value(option, false); }

Dims Case::dims(const std::string& option) const {
  return dims_of(json_["options"].value(option, json::array()));
}

void Case::change(const Results& results) const {
  const auto changed = json_.value("changed", std::string());
  const NoGrad no_grad;
  if (const auto found = arguments_.find(changed); found != arguments_.end()) {
    Tensor(found->second.base).fill(1);
  }
  for (const auto& [name, result] : results) {
    if (name == changed) result.detach().fill(1);
  }
}

Results Case::gradients(const Results& results) const {
  const json& seeds = json_["seeds"];
  for (const auto& [name, result] : results) {
    if (seeds.contains(name) && result.requires_grad()) {
      result.backward(viewed(made(seeds[name]), seeds[name]), {.retain_graph = true});
    }
  }
  Results gradients;
  for (const auto& [name, argument] : arguments_) {
    if (argument.base.grad().defined()) gradients.emplace_back("grad " + name, argument.base.grad());
  }
  return gradients;
}

json to_json(const Tensor& tensor) {
  std::string text;
  char number[40];
  const auto add = [&text, &number] {
    if (!text.empty()) text += ' ';
    text += number;
  };
  if (tensor.dtype() == DType::i64) {
    for (const std::int64_t value : tensor.to_vector<std::int64_t>()) {
      std::snprintf(number, sizeof number, "%lld", static_cast<long long>(value));
      add();
    }
  } else {
    for (const double value : tensor.to_vector<double>()) {
      std::snprintf(number, sizeof number, tensor.dtype() == DType::f64 ? "%.17g" : "%.9g", value);
      add();
    }
  }
  json shape = json::array();
  for (const std::int64_t extent : tensor.shape()) shape.push_back(extent);
  return {{"dtype", name_of(tensor.dtype())}, {"shape", shape}, {"values", text}};
}

}  // namespace dtrain::differential
