#include "tests/parity/operations/parity_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <utility>

namespace dtrain::test {
namespace {

using Json = nlohmann::json;

struct Row {
  std::string family, name;
  double forward = 0, gradient = 0;
};

/// Prints the rows of all families when the last test is done.
class Table final : public testing::Environment {
 public:
  void add(Row row) { rows_.push_back(std::move(row)); }
  void TearDown() override {
    std::printf("%-14s %-42s %10s %10s\n", "family", "operation", "forward", "gradient");
    for (const Row& row : rows_) {
      std::printf("%-14s %-42s %10.1e %10.1e\n", row.family.c_str(), row.name.c_str(), row.forward,
                  row.gradient);
    }
    std::printf("%zu operations; largest error relative to the largest value of PyTorch's, limit %.0e\n",
                rows_.size(), kParityLimit);
  }

 private:
  std::vector<Row> rows_;
};

/// GoogleTest owns it.
Table& table() {
  static auto* const made = dynamic_cast<Table*>(testing::AddGlobalTestEnvironment(new Table));
  return *made;
}
// Made before the tests start, so that GoogleTest knows of it.
const Table& table_is_registered = table();

Json load(const std::string& family) {
  const std::string path = std::string(DTRAIN_OPERATIONS_DIR) + "/" + family + ".json";
  std::ifstream stream(path);
  if (!stream) throw std::runtime_error("cannot read " + path);
  return Json::parse(stream);
}

Dims dims_of(const Json& shape) {
  const auto extents = shape.get<std::vector<std::int64_t>>();
  return Dims(std::span<const std::int64_t>(extents));
}

Tensor draw(const Dims& shape, std::uint64_t seed, const std::shared_ptr<Device>& device, double low = -1,
            double high = 1) {
  Generator generator(seed);
  return Tensor::rand(shape, generator, device, static_cast<float>(low), static_cast<float>(high));
}

/// Infinite where the sizes differ or a value is not a number.
double error_of(const Tensor& got, const Json& expected) {
  const auto values = got.to_vector<double>();
  const auto wanted = expected.get<std::vector<double>>();
  if (values.size() != wanted.size()) return INFINITY;
  double largest = 0, error = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    largest = std::max(largest, std::abs(wanted[i]));
    const double difference = std::abs(values[i] - wanted[i]);
    error = std::isnan(difference) ? INFINITY : std::max(error, difference);
  }
  return largest > 0 ? error / largest : error;
}

struct Arguments {
  Inputs all;
  std::size_t floats = 0;
};

Arguments arguments_of(const Json& expected, const std::shared_ptr<Device>& device) {
  Arguments result;
  auto seed = expected["seed"].get<std::uint64_t>();
  for (const Json& shape : expected["shapes"]) {
    result.all.push_back(
        draw(dims_of(shape), seed++, device, expected["low"].get<double>(), expected["high"].get<double>()));
    result.all.back().set_requires_grad(true);
  }
  result.floats = result.all.size();
  for (const Json& index : expected["indices"]) {
    result.all.push_back(
        Tensor::from_data(index["values"].get<std::vector<std::int64_t>>(), dims_of(index["shape"]), device));
  }
  return result;
}

/// Σ output · w over the outputs that gradients flow from.
Tensor loss_of(const std::vector<Tensor>& outputs, std::uint64_t seed) {
  Tensor loss;
  for (const Tensor& output : outputs) {
    if (!is_floating(output.dtype())) continue;
    const Tensor weights = draw(output.shape(), seed++, output.shared_device());
    const Tensor part = sum(mul(output, weights));
    loss = loss.defined() ? add(loss, part) : part;
  }
  return loss;
}

Row row_of(const std::string& family, const Json& expected,
           const std::function<Outputs(const Inputs&)>& operation, const std::shared_ptr<Device>& device) {
  Row row{family, expected["name"].get<std::string>()};
  const Arguments arguments = arguments_of(expected, device);
  const std::vector<Tensor> outputs = operation(arguments.all).all();
  if (outputs.size() != expected["outputs"].size()) row.forward = INFINITY;
  for (std::size_t i = 0; i < std::min(outputs.size(), expected["outputs"].size()); ++i) {
    row.forward = std::max(row.forward, error_of(outputs[i], expected["outputs"][i]));
  }
  const Tensor loss = loss_of(outputs, expected["seed"].get<std::uint64_t>() + arguments.floats);
  if (loss.defined() && loss.requires_grad()) loss.backward();
  for (std::size_t i = 0; i < arguments.floats; ++i) {
    const Tensor gradient = arguments.all[i].grad();
    const Json& wanted = expected["gradients"][i];
    if (gradient.defined() == wanted.is_null()) row.gradient = INFINITY;
    if (gradient.defined() && !wanted.is_null()) {
      row.gradient = std::max(row.gradient, error_of(gradient, wanted));
    }
  }
  return row;
}

}  // namespace

void expect_parity(const std::string& family, const Family& operations) {
  const auto device = make_device("cpu");
  const Json golden = load(family);
  std::set<std::string> seen;
  for (const Json& expected : golden["cases"]) {
    const auto name = expected["name"].get<std::string>();
    seen.insert(name);
    ASSERT_TRUE(operations.contains(name)) << family << ".json has \"" << name << "\", the test has not";
    const Row row = row_of(family, expected, operations.at(name), device);
    EXPECT_LE(row.forward, kParityLimit) << name;
    EXPECT_LE(row.gradient, kParityLimit) << name;
    table().add(row);
  }
  for (const auto& [name, operation] : operations) {
    EXPECT_TRUE(seen.contains(name)) << family << ".json lacks \"" << name << "\"; run make_golden.py";
  }
}

}  // namespace dtrain::test
