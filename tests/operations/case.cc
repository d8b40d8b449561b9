#include "tests/operations/case.h"

#include <cstdlib>

#include "runtime/autograd/grad_mode.h"
#include "runtime/base/error.h"

namespace dtrain::test {
namespace {

constexpr std::uint64_t kFirstSeed = 7, kFirstResultSeed = 1000;

Dims dims_of(const Json& list) {
  Dims dims;
  for (const Json& value : list) dims.push_back(value.integer());
  return dims;
}

/// `tested`: the dtype under test; "float" is float32 beside those of 16 bits.
DType dtype_named(const std::string& name, DType tested) {
  if (name == "float") return tested == DType::f64 ? DType::f64 : DType::f32;
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::i64, DType::i32, DType::u8}) {
    if (name_of(dtype) == name) return dtype;
  }
  throw Error("operations: unknown dtype " + name);
}

Tensor seen_through(const Tensor& tensor, const Json& view) {
  const auto name = view[0].text();
  const auto integer = [&view](std::size_t i) { return view[i].integer(); };
  const auto dim = [&integer](std::size_t i) { return static_cast<int>(integer(i)); };
  if (name == "slice") return tensor.slice(dim(1), integer(2), integer(3), integer(4));
  if (name == "select") return tensor.select(dim(1), integer(2));
  if (name == "transpose") return tensor.transpose(dim(1), dim(2));
  if (name == "permute") return tensor.permute(dims_of(view[1]));
  if (name == "expand") return tensor.expand(dims_of(view[1]));
  if (name == "reshape") return tensor.reshape(dims_of(view[1]));
  if (name == "unsqueeze") return tensor.unsqueeze(dim(1));
  throw Error("operations: unknown view " + name);
}

/// `base` as the views of `given` show it.
Tensor viewed(Tensor base, const Json& given) {
  if (given.is_object() && given.contains("views")) {
    for (const Json& view : given["views"]) base = seen_through(base, view);
  }
  return base;
}

Tensor from_values(const std::string& text, const Dims& shape, DType dtype,
                   const std::shared_ptr<Device>& device) {
  if (is_floating(dtype)) return Tensor::from_data(parse_values(text), shape, device).to(dtype);
  std::vector<std::int64_t> values;
  const char* at = text.c_str();
  for (char* end = nullptr; *at != '\0'; at = end) {
    values.push_back(std::strtoll(at, &end, 10));
    while (*end == ' ') ++end;
  }
  return Tensor::from_data(values, shape, device).to(dtype);
}

/// float32 from torch.manual_seed(seed), rounded, as `dtype`: made on the CPU, which has every dtype's casts.
Tensor drawn(const Dims& shape, std::uint64_t seed, double low, double high, std::optional<DType> rounded,
             DType dtype, const std::shared_ptr<Device>& device) {
  static const std::shared_ptr<Device> cpu = make_device("cpu");
  Generator generator(seed);
  Tensor values = Tensor::rand(shape, generator, cpu, static_cast<float>(low), static_cast<float>(high));
  if (rounded) values = values.to(*rounded);
  values = values.to(dtype);
  if (device->type() != DeviceType::cpu) return values.to(device);
  return Tensor::from_data(values.to(DType::f64).to_vector<double>(), shape, device).to(dtype);
}

bool wants_gradient(const Json& given) {
  return !given.is_object() || (given.contains("grad") && given["grad"].boolean());
}

}  // namespace

std::vector<double> parse_values(const std::string& text) {
  std::vector<double> values;
  const char* at = text.c_str();
  for (char* end = nullptr; *at != '\0'; at = end) {
    values.push_back(std::strtod(at, &end));
    if (end == at) throw Error("operations: not a number: " + std::string(at).substr(0, 20));
    while (*end == ' ') ++end;
  }
  return values;
}

Tensor drawn_seed(const Tensor& result, std::size_t place, std::optional<DType> rounded) {
  return drawn(result.shape(), kFirstResultSeed + place, -1, 1, rounded, result.dtype(),
               result.shared_device());
}

Case::Case(const Json& given, const std::shared_ptr<Device>& device, const Form& form)
    : json_(given),
      options_(given.contains("options") ? given["options"] : Json()),
      device_(device),
      form_(form) {
  std::size_t place = 0;
  for (const auto& [name, tensor] : json_["tensors"].items()) {
    const std::size_t at = place++;
    if (tensor.is_null()) continue;
    Argument argument{tensor, made(tensor, at), {}};
    if (wants_gradient(tensor)) argument.base.set_requires_grad(true);
    argument.used = seen(argument.base, tensor);
    arguments_.emplace(name, std::move(argument));
  }
}

Tensor Case::made(const Json& given, std::size_t place) const {
  const bool is_object = given.is_object();
  const Dims shape = dims_of(is_object ? given["shape"] : given);
  const DType dtype =
      is_object && given.contains("dtype") ? dtype_named(given["dtype"].text(), form_.dtype) : form_.dtype;
  if (is_object && given.contains("values"))
    return from_values(given["values"].text(), shape, dtype, device_);
  const Json& holder = is_object && given.contains("range") ? given : json_;
  const bool has_range = holder.contains("range");
  return drawn(shape, kFirstSeed + place, has_range ? holder["range"][0].number() : -1,
               has_range ? holder["range"][1].number() : 1, form_.rounded, dtype, device_);
}

Tensor Case::seen(const Tensor& base, const Json& given) const {
  const Tensor used = viewed(base, given);
  return given.is_object() ? used : laid_out(used);
}

Tensor Case::laid_out(const Tensor& image) const {
  return form_.channels_last && image.rank() == 4 ? image.contiguous(MemoryFormat::channels_last) : image;
}

Tensor Case::tensor(const std::string& name) const {
  const auto found = arguments_.find(name);
  return found == arguments_.end() ? Tensor() : found->second.used;
}

Tensor Case::base(const std::string& name) const { return arguments_.at(name).base; }

std::int64_t Case::integer(const std::string& option, std::int64_t otherwise) const {
  return maybe_integer(option).value_or(otherwise);
}

std::optional<std::int64_t> Case::maybe_integer(const std::string& option) const {
  if (!options_.contains(option)) return std::nullopt;
  return options_[option].integer();
}

std::optional<Number> Case::maybe_number(const std::string& option) const {
  if (!options_.contains(option)) return std::nullopt;
  return any_number(option);
}

Number Case::any_number(const std::string& option) const {
  const Json number = options_.at(option);
  if (number.is_integer()) return number.integer();
  return number.number();
}

std::string Case::text(const std::string& option) const { return options_.at(option).text(); }

double Case::number(const std::string& option, double otherwise) const {
  return options_.contains(option) ? options_[option].number() : otherwise;
}

bool Case::flag(const std::string& option, bool otherwise) const {
  return options_.contains(option) ? options_[option].boolean() : otherwise;
}

Dims Case::dims(const std::string& option, const Dims& otherwise) const {
  if (!options_.contains(option)) return otherwise;
  const Json given = options_[option];
  if (!given.is_integer()) return dims_of(given);
  Dims dims = otherwise;
  for (int i = 0; i < dims.rank(); ++i) dims[i] = given.integer();
  return dims;
}

std::vector<Tensor> Case::leaves() const {
  std::vector<Tensor> leaves;
  for (const auto& [name, argument] : arguments_) {
    if (argument.base.requires_grad()) leaves.push_back(argument.base);
  }
  return leaves;
}

Case Case::with(const std::vector<Tensor>& leaves) const {
  Case other = *this;
  std::size_t next = 0;
  for (auto& [name, argument] : other.arguments_) {
    if (!argument.base.requires_grad()) continue;
    argument.base = leaves.at(next++);
    argument.used = seen(argument.base, argument.given);
  }
  return other;
}

void Case::change(const Results& results) const {
  if (!json_.contains("changed")) return;
  const auto changed = json_["changed"].text();
  const NoGrad no_grad;
  if (const auto found = arguments_.find(changed); found != arguments_.end()) {
    Tensor(found->second.base).fill(1);
  }
  for (const auto& [name, result] : results) {
    if (name == changed) result.detach().fill(1);
  }
}

Results Case::gradients(const Results& results) const {
  std::size_t place = 0;
  for (const auto& [name, result] : results) {
    const std::size_t at = place++;
    if (!result.requires_grad()) continue;
    Tensor seed;
    if (!json_.contains("seeds"))
      seed = laid_out(drawn_seed(result, at, form_.rounded));
    else if (json_["seeds"].contains(name))
      seed = viewed(made(json_["seeds"][name], 0), json_["seeds"][name]);
    if (seed.defined()) result.backward(seed, {.retain_graph = true});
  }
  Results gradients;
  for (const auto& [name, argument] : arguments_) {
    if (argument.base.grad().defined()) gradients.emplace_back("grad " + name, argument.base.grad());
  }
  return gradients;
}

}  // namespace dtrain::test
