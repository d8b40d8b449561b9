# CMake's own module. That of CMake 3.25.1 (Debian 12's) marks CUDA::nvToolsExt as superseded where a project asks for
# CMake 3.25, and fails when there is no such target, as with CUDA 13.
set(dtrain_least_cmake "${CMAKE_MINIMUM_REQUIRED_VERSION}")
set(CMAKE_MINIMUM_REQUIRED_VERSION 3.24)
include("${CMAKE_ROOT}/Modules/FindCUDAToolkit.cmake")
set(CMAKE_MINIMUM_REQUIRED_VERSION "${dtrain_least_cmake}")
unset(dtrain_least_cmake)
