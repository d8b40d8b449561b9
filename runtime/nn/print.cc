#include "runtime/nn/print.h"

#include <cxxabi.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <memory>
#include <ostream>
#include <typeinfo>
#include <vector>

#include "runtime/nn/containers.h"

namespace dtrain {
namespace {

/// The name of a module's class, without namespaces.
std::string class_of(const Module& module) {
  const std::type_info& type = typeid(module);
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> readable(
      abi::__cxa_demangle(type.name(), nullptr, nullptr, &status), std::free);
  const std::string name = status == 0 ? readable.get() : type.name();
  const std::size_t arguments = std::min(name.find('<'), name.size());
  const std::size_t scope = name.rfind("::", arguments);
  return scope == std::string::npos ? name : name.substr(scope + 2);
}

/// `text` with its lines but the first two spaces further in.
std::string indented(const std::string& text) {
  std::string result;
  for (const char letter : text) {
    result += letter;
    if (letter == '\n') result += "  ";
  }
  return result;
}

struct Line {
  std::string name, text;
};

/// Neighbours that look the same as one: "(0-2): 3 x Linear(…)".
std::vector<Line> folded(const std::vector<Line>& lines) {
  std::vector<Line> result;
  for (std::size_t i = 0; i < lines.size();) {
    std::size_t end = i + 1;
    while (end < lines.size() && lines[end].text == lines[i].text) ++end;
    result.push_back(lines[i]);
    if (end - i > 1) {
      result.back() = {lines[i].name + "-" + lines[end - 1].name,
                       std::to_string(end - i) + " x " + lines[i].text};
    }
    i = end;
  }
  return result;
}

}  // namespace

std::string to_string(const Module& module) {
  std::vector<Line> lines;
  for (const auto& [name, child] : module.children()) lines.push_back({name, indented(to_string(*child))});
  if (dynamic_cast<const ModuleList*>(&module) != nullptr) lines = folded(lines);
  std::string text = class_of(module) + "(";
  const std::string own = module.extra_repr();
  if (lines.empty()) return text + own + ")";
  if (!own.empty()) text += "\n  " + own;
  for (const Line& line : lines) text += "\n  (" + line.name + "): " + line.text;
  return text + "\n)";
}

std::ostream& operator<<(std::ostream& out, const Module& module) { return out << to_string(module); }

namespace repr {

std::string number(double value) {
  std::array<char, 32> buffer{};
  const auto text_of = [&](std::chars_format format) {
    const auto result = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, format);
    return std::string(buffer.data(), result.ptr);
  };
  const std::string scientific = text_of(std::chars_format::scientific);
  const std::size_t letter = scientific.find('e');
  if (letter == std::string::npos) return scientific;  // inf and nan
  const int exponent = std::atoi(scientific.c_str() + letter + 1);
  if (exponent < -4 || exponent >= 16) return scientific;
  const std::string fixed = text_of(std::chars_format::fixed);
  return fixed.find('.') == std::string::npos ? fixed + ".0" : fixed;
}

std::string flag(bool value) { return value ? "True" : "False"; }

std::string tuple(std::span<const std::int64_t> values) {
  std::string text = "(";
  for (std::size_t i = 0; i < values.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(values[i]);
  return text + (values.size() == 1 ? ",)" : ")");
}

std::string tuple(std::initializer_list<std::int64_t> values) {
  return tuple(std::span(values.begin(), values.size()));
}

std::string number_or_tuple(std::initializer_list<std::int64_t> values) {
  const bool equal =
      std::all_of(values.begin(), values.end(), [&](std::int64_t v) { return v == *values.begin(); });
  return equal ? std::to_string(*values.begin()) : tuple(values);
}

std::string convolution(const Convolution& of) {
  const auto all = [](const Dims& dims, std::int64_t value) {
    return std::all_of(dims.begin(), dims.end(), [value](std::int64_t v) { return v == value; });
  };
  const auto named = [](const char* name, const Dims& dims) {
    return std::string(", ") + name + "=" + tuple(std::span(dims.begin(), dims.end()));
  };
  std::string text = std::to_string(of.in) + ", " + std::to_string(of.out) + named("kernel_size", of.kernel) +
                     named("stride", of.stride);
  if (!all(of.padding, 0)) text += named("padding", of.padding);
  if (!all(of.dilation, 1)) text += named("dilation", of.dilation);
  if (!all(of.output_padding, 0)) text += named("output_padding", of.output_padding);
  if (of.groups != 1) text += ", groups=" + std::to_string(of.groups);
  if (!of.bias) text += ", bias=False";
  return text;
}

}  // namespace repr
}  // namespace dtrain
