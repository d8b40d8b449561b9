// dtrain_differential: evaluates the cases that differential.py sends, one JSON line each, and answers with
// the results in one line each; or replays recorded cases and compares.
//
//     dtrain_differential                    < CASES > RESULTS
//     dtrain_differential --replay RECORDED
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <cstdint>
#include <exception>
#include <fstream>
#include <iostream>
#include <map>
#include <string>

#include "runtime/base/error.h"
#include "tests/operations/guarded_device.h"
#include "tests/operations/operations.h"

namespace dtrain::test {
namespace {

/// What became of a case: results by name, or why there are none.
struct Answer {
  std::map<std::string, Tensor> results;
  std::string refused, failed;
};

Answer evaluate(const Json& given, const std::shared_ptr<GuardedDevice>& device) {
  Answer answer;
  try {
    const Case c(given, device);
    const Results results = operations().at(c.operation()).run(c);
    for (const auto& [name, tensor] : results) answer.results[name] = tensor.detach().clone();
    c.change(results);
    for (const auto& [name, tensor] : c.gradients(results)) answer.results[name] = tensor;
  } catch (const UsageError& error) {
    answer.refused = error.what();
  } catch (const std::exception& error) {
    answer.failed = error.what();
  }
  if (device->take_overrun()) answer.failed = "memory beside an array was written";
  return answer;
}

std::string quoted(const std::string& text) {
  std::string all = "\"";
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x20) {
      all += fmt::format("\\u{:04x}", c);
      continue;
    }
    if (c == '"' || c == '\\') all += '\\';
    all += c;
  }
  return all + '"';
}

std::string values_of(const Tensor& tensor) {
  if (tensor.dtype() == DType::i64)
    return fmt::format("{}", fmt::join(tensor.to_vector<std::int64_t>(), " "));
  std::string text;
  for (const double value : tensor.to_vector<double>()) {
    if (!text.empty()) text += ' ';
    text += tensor.dtype() == DType::f64 ? fmt::format("{:.17g}", value) : fmt::format("{:.9g}", value);
  }
  return text;
}

/// {"id", "results"}, or {"id", "refused"} for what was refused properly and {"id", "failed"} otherwise.
std::string line_of(const Json& given, const Answer& answer) {
  const std::string id = "{\"id\":" + given["id"].dump();
  if (!answer.failed.empty()) return id + ",\"failed\":" + quoted(answer.failed) + "}";
  if (!answer.refused.empty()) return id + ",\"refused\":" + quoted(answer.refused) + "}";
  std::string results;
  for (const auto& [name, tensor] : answer.results) {
    results +=
        fmt::format("{}{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"values\":\"{}\"}}", results.empty() ? "" : ",",
                    quoted(name), name_of(tensor.dtype()), fmt::join(tensor.shape(), ","), values_of(tensor));
  }
  return id + ",\"results\":{" + results + "}}";
}

/// Why `got` is not what was recorded; empty when it is.
std::string difference(const Tensor& got, const Json& expected) {
  const Dims& shape = got.shape();
  if (expected["shape"] != std::vector<std::int64_t>(shape.begin(), shape.end()))
    return "shape " + shape.to_string();
  const std::vector<double> values = got.to_vector<double>(),
                            wanted = parse_values(expected["values"].text());
  const double relative = expected["relative"], absolute = expected["absolute"];
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const double allowed = absolute + relative * std::abs(wanted[i]);
    const bool same = std::isnan(wanted[i])   ? std::isnan(values[i])
                      : std::isinf(wanted[i]) ? values[i] == wanted[i]
                                              : std::abs(values[i] - wanted[i]) <= allowed;
    if (same) continue;
    return fmt::format("element {} expected {} within {}, got {}", i, wanted[i], allowed, values[i]);
  }
  return "";
}

std::string replayed(const Json& given, const Answer& answer) {
  const Json expected = given["expected"];
  if (!answer.failed.empty()) return answer.failed;
  if (expected.is_null()) return answer.refused.empty() ? "expected a UsageError" : "";
  if (!answer.refused.empty()) return answer.refused;
  for (const auto& [name, tensor] : expected.items()) {
    const auto found = answer.results.find(name);
    if (found == answer.results.end()) return name + " is missing";
    const std::string what = difference(found->second, tensor);
    if (!what.empty()) return name + ": " + what;
  }
  return "";
}

int replay(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw Error("differential: cannot read " + path);
  const auto device = make_guarded_device();
  int cases = 0, different = 0;
  for (std::string line; std::getline(file, line); ++cases) {
    const Json given = Json::parse(line);
    const std::string what = replayed(given, evaluate(given, device));
    if (what.empty()) continue;
    ++different;
    std::cout << "different: " << what << "\n  " << line << "\n";
  }
  std::cout << cases << " recorded cases, " << different << " different\n";
  return different == 0 && cases > 0 ? 0 : 1;
}

int serve() {
  const auto device = make_guarded_device();
  for (std::string line; std::getline(std::cin, line);) {
    const Json given = Json::parse(line);
    std::cout << line_of(given, evaluate(given, device)) << "\n" << std::flush;
  }
  return 0;
}

}  // namespace
}  // namespace dtrain::test

int main(int argc, char** argv) {
  const std::string flag = argc > 1 ? argv[1] : "";
  try {
    if (flag.empty()) return dtrain::test::serve();
    if (flag == "--replay" && argc == 3) return dtrain::test::replay(argv[2]);
  } catch (const std::exception& error) {
    std::cerr << "dtrain_differential: " << error.what() << "\n";
    return 1;
  }
  std::cerr << "usage: dtrain_differential [--replay RECORDED]\n";
  return 2;
}
