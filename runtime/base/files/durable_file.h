// Writing files that survive a kill or a power cut: whole writes, fsync, replacement by rename.
// What is named in an error is always the path, so that the reader knows which disk to look at.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "runtime/base/error.h"
#include "runtime/base/fd.h"

namespace dtrain {

/// Writes all of `bytes` to `fd`, continuing after interruptions and short writes. `path` is for the message
/// only. Throws SystemError (ENOSPC when the disk is full).
void write_all(int fd, std::span<const std::byte> bytes, const std::filesystem::path& path);
void write_all(int fd, std::string_view text, const std::filesystem::path& path);

/// Appends `text` to the regular file `fd` with one write(2), or nothing: what a full disk took of it is
/// taken back. Throws SystemError (ENOSPC then).
void append_whole(int fd, std::string_view text, const std::filesystem::path& path);

/// Opens `path`, creating it when missing, for lines that append_whole() adds. Of a last line without its
/// newline, which a kill has torn, what is there is cut off, so that it does not take the next with it.
/// Throws SystemError.
UniqueFd open_lines(const std::filesystem::path& path);

/// All of the regular file `fd`, as long as it is now. Throws SystemError.
std::string read_whole(int fd, const std::filesystem::path& path);

/// fsync(2) of an open file. Throws SystemError.
void sync_file(int fd, const std::filesystem::path& path);

/// Makes names created, renamed or removed in `directory` durable. File systems that cannot fsync a directory
/// (EINVAL) are taken as they are. Throws SystemError.
void sync_directory(const std::filesystem::path& directory);

/// Creates what is missing of `directory` and its parents and makes each new name durable. Throws UsageError
/// when something that is not a directory is in the way, SystemError otherwise.
void make_directories(const std::filesystem::path& directory);

/// 16 hexadecimal digits that no other thread, process or host draws: for names of temporary files, also in
/// folders that hosts share. Throws SystemError.
std::string unique_suffix();

/// Replaces `path` with a file holding `content`: temporary file beside it, fsync, rename, fsync of the
/// folder. At every moment `path` is the old file or the new one, whole. Throws SystemError; the old file is
/// then intact.
void replace_file(const std::filesystem::path& path, std::string_view content);

/// Creates `directory` (and its parents) when missing, writes and removes a probe file in it, and compares
/// the free space with `bytes_needed` (0: any). Meant for before the start, so that a run does not find out
/// hours later. Throws UsageError when something that is not a directory is in the way, SystemError (EROFS,
/// EACCES, ENOSPC, …) naming the directory otherwise.
void check_writable(const std::filesystem::path& directory, std::uint64_t bytes_needed);

/// `error` again with "context: " in front, the errno text once at the end.
SystemError with_context(const std::string& context, const SystemError& error);

}  // namespace dtrain
