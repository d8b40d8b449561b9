// dtrain_differential: evaluates the cases that differential.py sends, one JSON line each, and answers with
// the results in one line each; or replays recorded cases and compares.
//
//     dtrain_differential                    < CASES > RESULTS
//     dtrain_differential --replay RECORDED
#include <cmath>
#include <exception>
#include <fstream>
#include <iostream>
#include <string>

#include "runtime/base/error.h"
#include "tests/differential/case.h"
#include "tests/differential/guarded_device.h"
#include "tests/differential/operations.h"

namespace dtrain::differential {
namespace {

using nlohmann::json;

json results_of(const json& given, const std::shared_ptr<Device>& device) {
  const Case c(given, device);
  const Results results = operations().at(c.operation())(c);
  json answer = json::object();
  for (const auto& [name, tensor] : results) answer[name] = to_json(tensor);
  c.change(results);
  for (const auto& [name, tensor] : c.gradients(results)) answer[name] = to_json(tensor);
  return answer;
}

/// {"id", "results"}, or {"id", "refused", "by"} for what was refused properly and {"id", "failed"}
/// otherwise.
json evaluate(const json& given, const std::shared_ptr<GuardedDevice>& device) {
  json answer{{"id", given["id"]}};
  try {
    answer["results"] = results_of(given, device);
  } catch (const UsageError& error) {
    answer["refused"] = error.what();
  } catch (const std::exception& error) {
    answer["failed"] = error.what();
  }
  if (device->take_overrun()) answer["failed"] = "memory beside an array was written";
  return answer;
}

/// Why `got` is not what was recorded; empty when it is.
std::string difference(const json& got, const json& expected) {
  if (got["shape"] != expected["shape"]) return "shape " + got["shape"].dump();
  const std::vector<double> values = parse_values(got["values"]), wanted = parse_values(expected["values"]);
  const double relative = expected["relative"], absolute = expected["absolute"];
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const double allowed = absolute + relative * std::abs(wanted[i]);
    const bool same = std::isnan(wanted[i])   ? std::isnan(values[i])
                      : std::isinf(wanted[i]) ? values[i] == wanted[i]
                                              : std::abs(values[i] - wanted[i]) <= allowed;
    if (same) continue;
    return "element " + std::to_string(i) + " expected " + std::to_string(wanted[i]) + " within " +
           std::to_string(allowed) + ", got " + std::to_string(values[i]);
  }
  return "";
}

std::string replayed(const json& given, const json& answer) {
  const json& expected = given["expected"];
  if (expected.is_null())
    return answer.contains("refused") ? "" : "expected a UsageError, got " + answer.dump();
  if (!answer.contains("results")) return answer.dump();
  for (const auto& [name, tensor] : expected.items()) {
    if (!answer["results"].contains(name)) return name + " is missing";
    const std::string what = difference(answer["results"][name], tensor);
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
    const json given = json::parse(line);
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
    std::cout << evaluate(json::parse(line), device).dump() << "\n" << std::flush;
  }
  return 0;
}

}  // namespace
}  // namespace dtrain::differential

int main(int argc, char** argv) {
  const std::string flag = argc > 1 ? argv[1] : "";
  try {
    if (flag.empty()) return dtrain::differential::serve();
    if (flag == "--replay" && argc == 3) return dtrain::differential::replay(argv[2]);
  } catch (const std::exception& error) {
    std::cerr << "dtrain_differential: " << error.what() << "\n";
    return 1;
  }
  std::cerr << "usage: dtrain_differential [--replay RECORDED]\n";
  return 2;
}
