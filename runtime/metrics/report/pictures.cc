#include "runtime/metrics/report/pictures.h"

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

#include "runtime/base/error.h"

namespace dtrain {
namespace {

using nlohmann::ordered_json;

constexpr std::size_t kMostInMatrix = 24, kMostConfused = 20, kMostShown = 48;

/// Sums of one pair of classes.
struct Confused {
  std::size_t label = 0, predicted = 0;
  std::int64_t count = 0;
};

class Reader {
 public:
  Reader(const std::string& text, const std::string& path) : path_(path) {
    try {
      json_ = ordered_json::parse(text);
    } catch (const nlohmann::json::exception& error) {
      throw DataError(path_, -1, "JSON", error.what());
    }
    expect(json_.is_object(), "a JSON object");
  }
  const ordered_json& json() const noexcept { return json_; }

  void expect(bool is, const char* what) const {
    if (!is) throw DataError(path_, -1, what, "something else");
  }
  const ordered_json& list(const char* name) const {
    const auto found = json_.find(name);
    expect(found != json_.end() && found->is_array(), name);
    return *found;
  }
  /// The whole number `name` of `object`, in [0, end).
  std::int64_t number(const ordered_json& object, const char* name, std::int64_t end = INT64_MAX) const {
    const auto found = object.find(name);
    expect(found != object.end() && found->is_number_integer(), name);
    const auto value = found->get<std::int64_t>();
    expect(value >= 0 && value < end, name);
    return value;
  }
  /// Null, or pictures in columns: nothing in it but what a page may load.
  ordered_json sheet() const {
    const auto sheet = json_.find("sheet");
    if (sheet == json_.end() || sheet->is_null()) return nullptr;
    expect(sheet->is_object(), "sheet");
    const std::string image = sheet->value("image", "");
    constexpr std::string_view kKind = "data:image/jpeg;base64,";
    expect(image.starts_with(kKind) && image.size() < 1 << 20, "a picture as data of a page");
    const auto in_base64 = [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '+' ||
             c == '/' || c == '=';
    };
    expect(std::ranges::all_of(image.substr(kKind.size()), in_base64), "a picture in base64");
    return {{"image", image},
            {"columns", number(*sheet, "columns", 64)},
            {"cell", pair(*sheet, "cell")},
            {"size", pair(*sheet, "size")}};
  }

 private:
  ordered_json pair(const ordered_json& object, const char* name) const {
    const auto found = object.find(name);
    expect(found != object.end() && found->is_array() && found->size() == 2, name);
    for (const ordered_json& side : *found)
      expect(side.is_number_integer() && side > 0 && side < 4096, "sides of a picture");
    return *found;
  }

  const std::string& path_;
  ordered_json json_;
};

std::string dumped(const ordered_json& json) {
  return json.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

/// [label, predicted, count] each.
std::vector<Confused> table_of(const Reader& file, std::size_t classes) {
  std::vector<Confused> table;
  for (const ordered_json& entry : file.list("confusion")) {
    file.expect(entry.is_array() && entry.size() == 3 &&
                    std::ranges::all_of(entry, [](const auto& n) { return n.is_number_unsigned(); }),
                "confusion: a label, a predicted class and a count");
    const Confused one{entry[0], entry[1], entry[2]};
    file.expect(one.label < classes && one.predicted < classes, "confusion: classes that are listed");
    table.push_back(one);
  }
  return table;
}

ordered_json matrix_of(const std::vector<Confused>& table, std::size_t classes) {
  if (table.empty() || classes > kMostInMatrix) return nullptr;
  std::vector<std::vector<std::int64_t>> matrix(classes, std::vector<std::int64_t>(classes));
  for (const Confused& one : table) matrix[one.label][one.predicted] += one.count;
  return matrix;
}

ordered_json confused_most(std::vector<Confused> table, const ordered_json& classes) {
  std::vector<std::int64_t> of(classes.size());
  for (const Confused& one : table) of[one.label] += one.count;
  std::erase_if(table, [](const Confused& one) { return one.label == one.predicted; });
  std::ranges::stable_sort(table, std::ranges::greater(), &Confused::count);
  if (table.size() > kMostConfused) table.resize(kMostConfused);
  ordered_json rows = ordered_json::array();
  for (const Confused& one : table) {
    rows.push_back({{"label", classes[one.label]},
                    {"predicted", classes[one.predicted]},
                    {"count", one.count},
                    {"of", of[one.label]}});
  }
  return rows;
}

/// Takes the name of the sample's file over, where it has one.
void name_file(const ordered_json& entry, ordered_json& row) {
  const ordered_json file = entry.value("file", ordered_json());
  if (file.is_string()) row["file"] = file;
}

ordered_json mistakes_of(const Reader& file, const ordered_json& classes) {
  ordered_json rows = ordered_json::array();
  const auto count = static_cast<std::int64_t>(classes.size());
  for (const ordered_json& entry : file.list("mistakes")) {
    if (rows.size() == kMostShown) break;
    file.expect(entry.is_object() && entry.value("probability", ordered_json()).is_number(), "a mistake");
    rows.push_back({{"sample", file.number(entry, "sample")},
                    {"label", classes[static_cast<std::size_t>(file.number(entry, "label", count))]},
                    {"predicted", classes[static_cast<std::size_t>(file.number(entry, "predicted", count))]},
                    {"probability", entry["probability"]}});
    name_file(entry, rows.back());
  }
  return rows;
}

}  // namespace

std::string shown_batch(const std::string& text, const std::string& path) {
  const Reader file(text, path);
  ordered_json json = {{"sheet", file.sheet()}, {"samples", ordered_json::array()}};
  file.expect(!json["sheet"].is_null(), "sheet");
  for (const ordered_json& entry : file.list("samples")) {
    if (json["samples"].size() == kMostShown) break;
    file.expect(entry.is_object(), "a sample");
    json["samples"].push_back({{"sample", file.number(entry, "sample")}});
    name_file(entry, json["samples"].back());
    const ordered_json label = entry.value("label", ordered_json());
    if (label.is_string()) json["samples"].back()["label"] = label;
  }
  return dumped(json);
}

std::string shown_evaluation(const std::string& text, const std::string& path) {
  const Reader file(text, path);
  const ordered_json& classes = file.list("classes");
  file.expect(std::ranges::all_of(classes, [](const auto& name) { return name.is_string(); }), "classes");
  std::vector<Confused> table = table_of(file, classes.size());
  std::int64_t samples = 0;
  for (const Confused& one : table) samples += one.count;
  const ordered_json matrix = matrix_of(table, classes.size());
  const bool whole = !matrix.is_null();
  return dumped({{"epoch", file.number(file.json(), "epoch")},
                 {"samples", samples},
                 {"classes", whole ? classes : ordered_json::array()},
                 {"matrix", matrix},
                 {"confused", confused_most(std::move(table), classes)},
                 {"mistakes", mistakes_of(file, classes)},
                 {"sheet", file.sheet()}});
}

}  // namespace dtrain
