#include "runtime/base/files/needed_libraries.h"

#include <elf.h>

#include <cstring>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>

namespace dtrain {
namespace {

namespace fs = std::filesystem;

/// Reads of a file that has any bytes at all: nothing is taken from beyond its end.
class Elf {
 public:
  explicit Elf(const fs::path& path) : file_(path, std::ios::binary) {}

  template <class Record>
  std::optional<Record> at(std::uint64_t offset) {
    Record record;
    file_.clear();
    file_.seekg(static_cast<std::streamoff>(offset));
    file_.read(reinterpret_cast<char*>(&record), sizeof record);
    return file_ ? std::optional(record) : std::nullopt;
  }

  std::string text(std::uint64_t offset) {
    std::string found;
    file_.clear();
    file_.seekg(static_cast<std::streamoff>(offset));
    std::getline(file_, found, '\0');
    return found;
  }

  /// The program headers; empty where the file is none that this machine loads.
  std::vector<Elf64_Phdr> segments() {
    const auto header = at<Elf64_Ehdr>(0);
    if (!header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 ||
        header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_ident[EI_DATA] != ELFDATA2LSB ||
        header->e_phentsize != sizeof(Elf64_Phdr)) {
      return {};
    }
    std::vector<Elf64_Phdr> found;
    for (std::uint64_t i = 0; i < header->e_phnum; ++i) {
      const auto segment = at<Elf64_Phdr>(header->e_phoff + i * sizeof(Elf64_Phdr));
      if (!segment) return {};
      found.push_back(*segment);
    }
    return found;
  }

 private:
  std::ifstream file_;
};

/// Where in the file the byte lies that is loaded to `address`.
std::optional<std::uint64_t> offset_of(std::uint64_t address, const std::vector<Elf64_Phdr>& segments) {
  for (const Elf64_Phdr& segment : segments) {
    if (segment.p_type == PT_LOAD && address >= segment.p_vaddr &&
        address - segment.p_vaddr < segment.p_filesz) {
      return segment.p_offset + (address - segment.p_vaddr);
    }
  }
  return std::nullopt;
}

std::vector<fs::path> folders_of(const std::string& run_path, const fs::path& origin) {
  constexpr std::string_view kOrigin = "$ORIGIN";
  std::vector<fs::path> folders;
  std::istringstream in(run_path);
  for (std::string folder; std::getline(in, folder, ':');) {
    if (const auto found = folder.find(kOrigin); found != folder.npos)
      folder.replace(found, kOrigin.size(), origin.string());
    if (!folder.empty()) folders.emplace_back(folder);
  }
  return folders;
}

}  // namespace

NeededLibraries needed_libraries(const fs::path& path) {
  Elf file(path);
  const std::vector<Elf64_Phdr> segments = file.segments();
  std::vector<std::uint64_t> names, run_paths;  // offsets into the table of texts
  std::optional<std::uint64_t> texts;
  for (const Elf64_Phdr& segment : segments) {
    if (segment.p_type != PT_DYNAMIC) continue;
    for (std::uint64_t at = 0; at + sizeof(Elf64_Dyn) <= segment.p_filesz; at += sizeof(Elf64_Dyn)) {
      const auto entry = file.at<Elf64_Dyn>(segment.p_offset + at);
      if (!entry || entry->d_tag == DT_NULL) break;
      if (entry->d_tag == DT_NEEDED) names.push_back(entry->d_un.d_val);
      if (entry->d_tag == DT_RUNPATH || entry->d_tag == DT_RPATH) run_paths.push_back(entry->d_un.d_val);
      if (entry->d_tag == DT_STRTAB) texts = offset_of(entry->d_un.d_ptr, segments);
    }
  }
  NeededLibraries needed;
  if (!texts) return needed;
  for (const std::uint64_t name : names) needed.names.push_back(file.text(*texts + name));
  for (const std::uint64_t text : run_paths) {
    for (fs::path& folder : folders_of(file.text(*texts + text), path.parent_path()))
      needed.run_path.push_back(std::move(folder));
  }
  return needed;
}

}  // namespace dtrain
