// Writing a folder as others publish weights.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "runtime/autograd/grad_mode.h"
#include "runtime/base/error.h"
#include "runtime/base/files/durable_file.h"
#include "runtime/checkpoint/safetensors.h"
#include "training/use/output_file.h"
#include "training/use/published_weights.h"

namespace dtrain {
namespace {

namespace fs = std::filesystem;

constexpr std::array kTokenizerFiles = {
    "tokenizer.json",          "tokenizer_config.json",  "vocab.json",       "merges.txt", "vocab.txt",
    "special_tokens_map.json", "generation_config.json", "added_tokens.json"};

/// A tensor to be written: which part of which of ours.
struct Piece {
  const PublishedTensor* tensor;
  std::size_t part;
  std::uint64_t bytes;
};

const Tensor& named(const NamedTensors& state, const std::string& name) {
  const auto found = std::ranges::find(state, name, &NamedTensor::first);
  if (found == state.end())
    throw UsageError(fmt::format("expected weights with a tensor {}, got none", name));
  return found->second;
}

/// The pieces, cut into files of at most `file_bytes`.
std::vector<std::vector<Piece>> files_of(const NamedTensors& state, const PublishedFormat& format,
                                         std::uint64_t file_bytes) {
  std::vector<std::vector<Piece>> files(1);
  std::uint64_t used = 0;
  for (const PublishedTensor& tensor : format.tensors) {
    const Tensor& ours = named(state, tensor.ours);
    const auto row_bytes =
        static_cast<std::uint64_t>(ours.numel() / std::max<std::int64_t>(ours.size(0), 1)) *
        size_of(format.dtype);
    for (std::size_t part = 0; part < tensor.parts.size(); ++part) {
      const std::uint64_t bytes = row_bytes * static_cast<std::uint64_t>(tensor.parts[part].rows);
      if (used > 0 && used + bytes > file_bytes) {
        files.emplace_back();
        used = 0;
      }
      files.back().push_back({&tensor, part, bytes});
      used += bytes;
    }
  }
  return files;
}

void write_file(const fs::path& path, const NamedTensors& state, const std::vector<Piece>& pieces,
                DType dtype) {
  std::vector<Tensor> memory;
  std::vector<NamedView> views;
  for (const Piece& piece : pieces) {
    memory.push_back(published_part(named(state, piece.tensor->ours), *piece.tensor, piece.part, dtype));
    views.push_back({piece.tensor->parts[piece.part].name, memory.back().view()});
  }
  write_safetensors(path, views, {{"format", "pt"}});
}

std::string index_of(const std::vector<std::vector<Piece>>& files, const std::vector<std::string>& names) {
  nlohmann::ordered_json index = {{"metadata", {{"total_size", 0}}},
                                  {"weight_map", nlohmann::ordered_json::object()}};
  std::uint64_t total = 0;
  for (std::size_t file = 0; file < files.size(); ++file) {
    for (const Piece& piece : files[file]) {
      index["weight_map"][piece.tensor->parts[piece.part].name] = names[file];
      total += piece.bytes;
    }
  }
  index["metadata"]["total_size"] = total;
  return index.dump(2) + "\n";
}

void write_text_file(const fs::path& path, std::string_view text) {
  OutputFile file(path, false);
  file.write(text);
  file.commit();
}

/// A folder beside `folder` that is removed unless it gets that name.
class DraftFolder {
 public:
  explicit DraftFolder(const fs::path& folder) : folder_(folder), draft_(draft_of(folder)) {
    if (fs::exists(folder_)) {
      throw UsageError(fmt::format(
          "{}: expected a folder that does not exist yet, got one that does; give another name, or "
          "remove it",
          folder_.string()));
    }
    std::error_code failed;
    fs::create_directories(draft_, failed);
    if (failed) throw SystemError(fmt::format("create folder {}", draft_.string()), failed.value());
  }
  ~DraftFolder() {
    std::error_code ignored;
    if (!draft_.empty()) fs::remove_all(draft_, ignored);
  }
  DraftFolder(const DraftFolder&) = delete;
  DraftFolder& operator=(const DraftFolder&) = delete;

  const fs::path& path() const noexcept { return draft_; }
  void commit() {
    std::error_code failed;
    fs::rename(draft_, folder_, failed);
    if (failed)
      throw SystemError(fmt::format("rename {} to {}", draft_.string(), folder_.string()), failed.value());
    draft_.clear();
    sync_directory(folder_.has_parent_path() ? folder_.parent_path() : ".");
  }

 private:
  fs::path folder_, draft_;
};

}  // namespace

Tensor published_part(const Tensor& ours, const PublishedTensor& published, std::size_t part, DType dtype) {
  const NoGrad no_grad;
  Tensor whole = ours.detach();
  if (!published.rows.empty()) {
    std::vector<std::int64_t> inverse(published.rows.size());
    for (std::size_t i = 0; i < inverse.size(); ++i)
      inverse[static_cast<std::size_t>(published.rows[i])] = static_cast<std::int64_t>(i);
    whole = whole.index_select(0, Tensor::from_data(inverse, {whole.size(0)}, whole.shared_device()));
  }
  std::int64_t first = 0;
  for (std::size_t before = 0; before < part; ++before) first += published.parts[before].rows;
  Tensor own = whole.slice(0, first, first + published.parts[part].rows);
  if (published.transposed) own = own.transpose(0, 1);
  return own.to(dtype).contiguous();
}

std::size_t write_published(const fs::path& folder, const NamedTensors& state, const PublishedFormat& format,
                            std::uint64_t file_bytes) {
  DraftFolder draft(folder);
  const auto files = files_of(state, format, file_bytes);
  std::vector<std::string> names;
  std::size_t tensors = 0;
  for (std::size_t i = 0; i < files.size(); ++i) {
    names.push_back(files.size() == 1 ? format.weights_file
                                      : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, files.size()));
    write_file(draft.path() / names.back(), state, files[i], format.dtype);
    tensors += files[i].size();
  }
  if (files.size() > 1)
    write_text_file(draft.path() / "model.safetensors.index.json", index_of(files, names));
  write_text_file(draft.path() / format.config_file, format.config);
  if (!format.folder.empty()) {
    for (const char* const name : kTokenizerFiles) {
      if (fs::exists(format.folder / name)) fs::copy_file(format.folder / name, draft.path() / name);
    }
  }
  draft.commit();
  return tensors;
}

}  // namespace dtrain
