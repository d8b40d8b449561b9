#include "cluster/detect/program_note.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>

#include <cstring>
#include <vector>

#include "runtime/base/fd.h"

namespace dtrain {
namespace {

constexpr std::size_t kMaxNotes = 65536;  // bytes of one segment
constexpr std::size_t kMaxSegments = 1024;

template <class T>
bool read_at(int fd, std::uint64_t offset, T* to, std::size_t count = 1) {
  const std::size_t bytes = count * sizeof(T);
  return ::pread(fd, to, bytes, static_cast<off_t>(offset)) == static_cast<ssize_t>(bytes);
}

constexpr std::size_t padded(std::size_t bytes) { return (bytes + 3) / 4 * 4; }

bool holds_note(const std::vector<char>& notes) {
  const ProgramNote wanted;
  ElfW(Nhdr) header;
  for (std::size_t at = 0; at + sizeof header <= notes.size();) {
    std::memcpy(&header, notes.data() + at, sizeof header);
    const std::size_t size = sizeof header + padded(header.n_namesz) + padded(header.n_descsz);
    if (size > notes.size() - at) return false;
    if (size == sizeof wanted && std::memcmp(notes.data() + at, &wanted, sizeof wanted) == 0) return true;
    at += size;
  }
  return false;
}

}  // namespace

bool has_program_note(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  ElfW(Ehdr) header;
  constexpr unsigned char kClass = sizeof(void*) == 8 ? ELFCLASS64 : ELFCLASS32;
  if (!file || !read_at(file.get(), 0, &header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      header.e_ident[EI_CLASS] != kClass || header.e_phentsize != sizeof(ElfW(Phdr)) ||
      header.e_phnum > kMaxSegments)
    return false;
  std::vector<ElfW(Phdr)> segments(header.e_phnum);
  if (segments.empty() || !read_at(file.get(), header.e_phoff, segments.data(), segments.size()))
    return false;
  for (const auto& segment : segments) {
    if (segment.p_type != PT_NOTE || segment.p_filesz > kMaxNotes) continue;
    std::vector<char> notes(segment.p_filesz);
    if (!notes.empty() && read_at(file.get(), segment.p_offset, notes.data(), notes.size()) &&
        holds_note(notes))
      return true;
  }
  return false;
}

}  // namespace dtrain
