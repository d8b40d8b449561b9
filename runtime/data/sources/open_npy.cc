#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "runtime/base/error.h"
#include "runtime/data/formats/npz.h"
#include "runtime/data/sources/npy_source.h"
#include "runtime/data/sources/open_files.h"
#include "runtime/data/sources/source_spec.h"

namespace dtrain {
namespace {

constexpr std::string_view kTestPrefix = "test.";

using Files = std::vector<std::pair<std::string, std::string>>;  // of each field

/// "npy:…" or "idx:…" taken apart.
struct Request {
  Files train, test;
  NpyLimits limits;
  HoldOut hold_out;
};

/// How a file is opened for a field.
using OpenField = std::function<NpyField(const std::string& name, const std::string& path)>;

/// A field for each array in `file`, which is below `folder`.
Files arrays_of(const std::string& file, const std::filesystem::path& folder) {
  Files files;
  const NpzFile archive((folder / file).string());
  for (const std::string& name : archive.names()) files.emplace_back(name, fmt::format("{}:{}", file, name));
  return files;
}

// What is not a setting is a field's name.
Request parse(SourceSpec& spec, const std::string& kind, const std::filesystem::path& folder) {
  Request request;
  const std::string& all = spec.file();
  if (!all.empty()) {
    if (kind != "npy" || !all.ends_with(".npz")) {
      spec.refuse(kind == "npy"
                      ? "FILE.npz or NAME=FILE first, as in npy:x=inputs.npy,y=targets.npy,split=0.9"
                      : "NAME=FILE first, as in idx:image=pictures,label=classes,split=0.9",
                  all);
    }
    request.train = arrays_of(all, folder);
    if (const auto test = spec.take("test")) request.test = arrays_of(*test, folder);
  }
  request.limits = {.classes = spec.take_integer("classes", 0, INT64_MAX, 0),
                    .ignored = spec.take_integer("ignore", 0, INT32_MAX, NpyLimits().ignored),
                    .vocabulary = spec.take_integer("vocabulary", 0, INT32_MAX, 0)};
  request.hold_out = take_hold_out(spec);
  for (auto& [key, value] : spec.take_rest()) {
    const bool test = key.starts_with(kTestPrefix);
    (test ? request.test : request.train).emplace_back(key.substr(test ? kTestPrefix.size() : 0), value);
  }
  if (request.train.empty()) spec.refuse("at least one field, NAME=FILE", "none");
  check_hold_out(spec, request.hold_out, !request.test.empty());
  return request;
}

std::vector<NpyField> open_fields(const Files& files, const std::filesystem::path& folder,
                                  const OpenField& open) {
  std::vector<NpyField> fields;
  for (const auto& [name, file] : files) fields.push_back(open(name, (folder / file).string()));
  return fields;
}

// The test files in the training files' order.
Files in_order(const SourceSpec& spec, const Files& test, const Files& train) {
  Files ordered;
  for (const auto& [name, file] : train) {
    const auto found = std::ranges::find(test, name, &Files::value_type::first);
    if (found == test.end()) spec.refuse(fmt::format("test.{}=FILE beside {}", name, name), "none");
    ordered.push_back(*found);
  }
  for (const auto& [name, file] : test) {
    if (std::ranges::find(train, name, &Files::value_type::first) == train.end())
      spec.refuse(fmt::format("{}=FILE beside test.{}", name, name), "none");
  }
  return ordered;
}

// One network takes both.
void check_alike(const SourceSpec& spec, const Source& train, const Source& test) {
  const auto a = train.fields(), b = test.fields();
  if (!std::equal(a.begin(), a.end(), b.begin(), b.end()))
    spec.refuse(fmt::format("test files like the training files: {}", describe(a)), describe(b));
}

Splits open_arrays(const std::string& kind, std::string_view text, const std::filesystem::path& folder,
                   const OpenField& open) {
  SourceSpec spec(kind, text);
  const Request request = parse(spec, kind, folder);
  std::vector<NpyField> fields = open_fields(request.train, folder, open);
  const std::string& first = fields.front().path;
  const bool tested = !request.test.empty();
  const auto train = std::make_shared<const NpySource>(
      fmt::format("{} {}({}, ...)", kind, tested ? "train " : "", first), fields, request.limits);
  if (!tested)
    return split_source(train, request.hold_out,
                        request.hold_out.stratify ? train->labels() : std::vector<std::int64_t>());
  const Field* const label = find_field(train->fields(), "label");
  std::vector<NpyField> held_out = open_fields(in_order(spec, request.test, request.train), folder, open);
  const std::string name = fmt::format("{} test ({}, ...)", kind, held_out.front().path);
  const NpyLimits limits{.classes = label != nullptr ? label->values : request.limits.classes,
                         .ignored = request.limits.ignored,
                         .vocabulary = request.limits.vocabulary};
  const auto test = std::make_shared<const NpySource>(name, std::move(held_out), limits);
  check_alike(spec, *train, *test);
  return {train, test};
}

}  // namespace

Splits open_npy(std::string_view spec, const std::filesystem::path& folder) {
  return open_arrays("npy", spec, folder, [](const std::string& name, const std::string& path) {
    return open_npy_field(name, path);
  });
}

Splits open_idx(std::string_view spec, const std::filesystem::path& folder, DataCache& cache) {
  return open_arrays("idx", spec, folder, [&cache](const std::string& name, const std::string& path) {
    return open_idx_field(name, path, cache);
  });
}

}  // namespace dtrain
