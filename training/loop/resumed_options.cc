#include "training/loop/resumed_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "training/options/train_flags.h"

namespace dtrain {
namespace {

constexpr const char* kNextLr = "next-lr";
const std::string kOptionPrefix = "option.";
const std::string kUnset = "unset";
std::string value_of(const Options& options, const std::string& name) {
  return options.has(name) ? options.text(name) : kUnset;
}

std::vector<std::string> noted_names() {
  std::vector<std::string> names;
  for (const OptionSpec& spec : train_options()) {
    if (spec.agreement == Agreement::noted) names.emplace_back(spec.name);
  }
  return names;
}

/// "0.1" is "1e-1".
bool are_equal(const std::string& a, const std::string& b) {
  const auto x = parse_real(a), y = parse_real(b);
  return x && y ? *x == *y : a == b;
}

}  // namespace

std::map<std::string, std::string> noted_options(const Options& options) {
  std::map<std::string, std::string> noted;
  for (const std::string& name : noted_names()) noted.emplace(kOptionPrefix + name, value_of(options, name));
  return noted;
}

std::string changed_options(const Options& now, const std::map<std::string, std::string>& saved) {
  std::string text;
  for (const std::string& name : noted_names()) {
    const auto before = saved.find(kOptionPrefix + name);
    const std::string value = value_of(now, name);
    if (before == saved.end() || are_equal(before->second, value)) continue;
    text += fmt::format("{}--{} {} ({} before)", text.empty() ? "" : ", ", name, value, before->second);
  }
  return text;
}

std::pair<std::string, std::string> noted_lr(double lr) { return {kNextLr, fmt::format("{}", lr)}; }

std::string lr_jump(const LrSchedule& schedule, double position, bool is_plain,
                    const std::map<std::string, std::string>& saved) {
  const auto noted = saved.find(kNextLr);
  const auto before = noted == saved.end() ? std::nullopt : parse_real(noted->second);
  const double now = schedule.at(position);
  if (!before || std::abs(now - *before) <= 1e-9 * std::max(now, *before)) return "";
  std::string text =
      fmt::format("the learning rate is {:g} from here; the earlier run would have used {:g}", now, *before);
  // The rate is a straight line in its base.
  const double at_zero = schedule.at(position, 0), slope = schedule.at(position, 1) - at_zero;
  const double base = (*before - at_zero) / slope;
  if (is_plain && std::isfinite(base) && base > 0)
    text += fmt::format(". --lr {:.4g} continues at that rate; the earlier options keep the earlier schedule",
                        base);
  return text;
}

}  // namespace dtrain
