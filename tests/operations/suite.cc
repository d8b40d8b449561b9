#include "tests/operations/suite.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <set>

#include "runtime/base/error.h"
#include "tests/support/golden.h"

namespace dtrain::test {
namespace {

/// Where the table's files are, on the machine that runs the tests: it need not be the one that built them.
const std::string& folder() {
  static const std::string kFolder = [] {
    const char* const given = std::getenv("DTRAIN_OPERATIONS_DIR");
    return std::string(given != nullptr ? given : DTRAIN_OPERATIONS_DIR);
  }();
  return kFolder;
}

/// Results that should be 0 are what rounding leaves of terms of about 1.
constexpr double kLeast = 0.1;

FixedCase parsed(const std::string& line) {
  FixedCase c;
  c.json = Json::parse(line);
  const std::string operation = c.json["op"].text();
  c.name = c.json.contains("name") ? c.json["name"].text() : operation;
  const auto found = operations().find(operation);
  if (found == operations().end()) throw Error("cases.jsonl: no operation " + operation + " in the table");
  c.kind = found->second.kind;
  c.is_large = c.json.contains("large");
  c.for_cpu = c.is_large && c.json["large"] == "cpu";
  c.has_ties = c.json.contains("ties");
  for (const auto& [argument, given] : c.json["tensors"].items())
    c.has_images = c.has_images || (!given.is_object() && given.size() == 4);
  if (c.json.contains("rough")) c.rough = c.json["rough"].number();
  if (c.json.contains("orders")) c.orders = c.json["orders"];
  return c;
}

double largest(const std::vector<double>& values) {
  double most = 0;
  for (const double value : values) {
    if (std::isfinite(value)) most = std::max(most, std::abs(value));
  }
  return most;
}

}  // namespace

std::vector<bool> layouts_of(const FixedCase& c) {
  return c.has_images ? std::vector{false, true} : std::vector{false};
}

void PrintTo(const FixedCase& c, std::ostream* out) { *out << c.name; }

std::string name_of_case(const FixedCase& c) {
  std::string name = c.name;
  for (char& letter : name) {
    if (std::isalnum(static_cast<unsigned char>(letter)) == 0) letter = '_';
  }
  return name;
}

const std::vector<FixedCase>& fixed_cases() {
  static const std::vector<FixedCase> kCases = [] {
    std::vector<FixedCase> cases;
    std::set<std::string> names;
    std::ifstream file(folder() + "/cases.jsonl");
    for (std::string line; std::getline(file, line);) {
      cases.push_back(parsed(line));
      if (!names.insert(name_of_case(cases.back())).second)
        throw Error("cases.jsonl: two cases are called " + cases.back().name);
    }
    if (cases.empty()) throw Error(std::string("cannot read ") + folder() + "/cases.jsonl");
    return cases;
  }();
  return kCases;
}

Values results_of(const FixedCase& fixed, const std::shared_ptr<Device>& device, const Form& form) {
  const Case c(fixed.json, device, form);
  Values values;
  const NoGrad no_grad;
  for (const auto& [name, tensor] : operations().at(c.operation()).run(c))
    values[name] = tensor.to(DType::f64).to_vector<double>();
  return values;
}

Values values_of(const FixedCase& fixed, const std::shared_ptr<Device>& device, const Form& form) {
  const Case c(fixed.json, device, form);
  const Results results = operations().at(c.operation()).run(c);
  Values values;
  for (const auto& [name, tensor] : results) values[name] = tensor.to(DType::f64).to_vector<double>();
  if (fixed.kind == Kind::update || (fixed.has_ties && size_of(form.rounded.value_or(DType::f64)) == 2))
    return values;
  for (const auto& [name, tensor] : c.gradients(results))
    values[name] = tensor.to(DType::f64).to_vector<double>();
  return values;
}

Values recorded_values(const FixedCase& c) {
  static const Golden kRecorded(folder() + "/recorded.safetensors");
  Values values;
  for (const std::string& key : kRecorded.names()) {
    if (key.starts_with(c.name + "/")) values[key.substr(c.name.size() + 1)] = kRecorded.numbers(key);
  }
  return values;
}

double tolerance_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return 1e-11;
    case DType::f32:
      return 1e-5;
    case DType::f16:
      return 1.0 / 128;
    default:
      return 1.0 / 16;  // bfloat16: some roundings to 8 bits
  }
}

void expect_alike(const Values& got, const Values& expected, double tolerance) {
  for (const auto& [name, wanted] : expected) {
    const auto found = got.find(name);
    ASSERT_NE(found, got.end()) << "no " << name;
    ASSERT_EQ(found->second.size(), wanted.size()) << name;
    const double room = tolerance * std::max(largest(wanted), kLeast);
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      const double value = found->second[i];
      if (value == wanted[i] || (std::isnan(value) && std::isnan(wanted[i]))) continue;
      ASSERT_LE(std::abs(value - wanted[i]), room)
          << name << ", element " << i << ": expected " << wanted[i] << ", got " << value;
    }
  }
  for (const auto& [name, values] : got) EXPECT_TRUE(expected.contains(name)) << name << " should not be";
}

}  // namespace dtrain::test
