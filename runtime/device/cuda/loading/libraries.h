// The libraries of NVIDIA's that the CUDA module needs (cuBLASLt, cuDNN, NCCL): where they may lie beside the
// dynamic linker's places, and which packages have them.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "runtime/base/environment.h"

namespace dtrain::cuda {

/// Folders that exist, best first: NVIDIA's wheels (`nvidia/*/lib`) of the Python environment that a program
/// in `program_folder` was installed into, of $VIRTUAL_ENV, of $CONDA_PREFIX, and of the system's Python;
/// then the toolkits at $CUDA_PATH, $CUDA_HOME and below `root`/usr/local/cuda. `root`: "/", another one in
/// tests.
std::vector<std::filesystem::path> library_folders(const std::filesystem::path& program_folder,
                                                   const Environment& environment,
                                                   const std::filesystem::path& root = "/");

/// What to install where `missing` are not there: packages from PyPI and from NVIDIA's apt repository, for
/// the CUDA release that `needed`, all libraries of the module, says ("libcublasLt.so.13").
std::string how_to_get_libraries(const std::vector<std::string>& missing,
                                 const std::vector<std::string>& needed);

}  // namespace dtrain::cuda
