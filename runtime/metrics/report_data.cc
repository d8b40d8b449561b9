#include "runtime/metrics/report_data.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "runtime/base/check.h"
#include "runtime/base/durable_file.h"
#include "runtime/base/error.h"
#include "runtime/base/fd.h"

namespace dtrain {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using nlohmann::ordered_json;

std::string read_text(const fs::path& path) {
  const UniqueFd fd(
      static_cast<int>(check(Sys{::open(path.c_str(), O_RDONLY | O_CLOEXEC)}, "open " + path.string())));
  return read_whole(fd.get(), path);
}

void add_point(const json& record, const char* key, double x, std::vector<ReportPoint>& points) {
  const auto found = record.find(key);
  if (found != record.end() && found->is_number()) points.push_back({x, found->get<double>()});
}

/// For people: the files beside the report have every digit.
std::string text_of(const std::string& name, const ordered_json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_integer() && name.ends_with("_bytes")) {
    return fmt::format("{} ({:.1f} MiB)", value.get<std::int64_t>(), value.get<double>() / (1 << 20));
  }
  if (value.is_number_float()) return fmt::format("{:.6g}", value.get<double>());
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

void add_rows(const std::string& name, const ordered_json& value, std::vector<ReportRow>& rows) {
  if (!value.is_object()) {
    rows.push_back({name, text_of(name, value), {}});
  } else if (value.size() == 2 && value.contains("value") && value.contains("source")) {
    rows.push_back({name, text_of(name, value["value"]), text_of({}, value["source"])});
  } else {
    for (const auto& [key, inner] : value.items())
      add_rows(name.empty() ? key : name + "." + key, inner, rows);
  }
}

std::vector<ReportRow> optional_table(const fs::path& path) {
  std::error_code error;
  if (!fs::exists(path, error)) return {};
  return table_of(read_text(path), path.string());
}

}  // namespace

void add_metrics(std::string_view jsonl, ReportData& data) {
  double step = 0;
  while (!jsonl.empty()) {
    const std::string_view line = jsonl.substr(0, jsonl.find('\n'));
    jsonl.remove_prefix(std::min(line.size() + 1, jsonl.size()));
    const json record = json::parse(line, nullptr, false);
    if (!record.is_object()) {
      ++data.unreadable_lines;
      continue;
    }
    const json event = record.value("event", json());
    if (event == "step") {
      if (const json number = record.value("step", json()); number.is_number()) step = number.get<double>();
      add_point(record, "loss", step, data.train_loss);
    } else if (event == "eval") {
      add_point(record, "loss", step, data.eval_loss);
      add_point(record, "accuracy", step, data.accuracy);
    }
  }
}

std::vector<ReportRow> table_of(const std::string& json_text, const std::string& path) {
  std::vector<ReportRow> rows;
  try {
    add_rows("", ordered_json::parse(json_text), rows);
  } catch (const json::parse_error& error) {
    throw DataError(path, static_cast<std::int64_t>(error.byte), "JSON", error.what());
  } catch (const json::exception& error) {  // a number too large for a double
    throw DataError(path, -1, "JSON", error.what());
  }
  return rows;
}

ReportData read_report_data(const RunDirectory& run) {
  ReportData data;
  add_metrics(read_text(run.metrics()), data);
  data.config = optional_table(run.config());
  data.summary = optional_table(run.summary());
  return data;
}

}  // namespace dtrain
