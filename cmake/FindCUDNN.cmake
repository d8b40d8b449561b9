# Finds cuDNN 9 or later: target CUDNN::cudnn, CUDNN_VERSION. Looks in CUDNN_ROOT, the CUDA toolkit, the system, and
# last in Python's wheels (nvidia-cudnn), which carry libcudnn.so.9 without the plain libcudnn.so name.
find_package(CUDAToolkit QUIET)
file(GLOB cudnn_wheels /usr/local/lib/python3*/dist-packages/nvidia/cudnn /usr/lib/python3*/site-packages/nvidia/cudnn
     $ENV{VIRTUAL_ENV}/lib/python3*/site-packages/nvidia/cudnn)
set(cudnn_places ${CUDAToolkit_LIBRARY_ROOT} ${CUDAToolkit_TARGET_DIR} /usr/local/cuda ${cudnn_wheels})
find_path(CUDNN_INCLUDE_DIR cudnn.h HINTS ${CUDNN_ROOT} ENV CUDNN_ROOT PATHS ${cudnn_places} PATH_SUFFIXES include)
find_library(CUDNN_LIBRARY NAMES cudnn libcudnn.so.9 HINTS ${CUDNN_ROOT} ENV CUDNN_ROOT PATHS ${cudnn_places}
             PATH_SUFFIXES lib lib64)
mark_as_advanced(CUDNN_INCLUDE_DIR CUDNN_LIBRARY)

if(CUDNN_INCLUDE_DIR AND EXISTS "${CUDNN_INCLUDE_DIR}/cudnn_version.h")
  file(STRINGS "${CUDNN_INCLUDE_DIR}/cudnn_version.h" cudnn_numbers REGEX "#define CUDNN_(MAJOR|MINOR|PATCHLEVEL) ")
  string(REGEX REPLACE ".*MAJOR ([0-9]+).*MINOR ([0-9]+).*PATCHLEVEL ([0-9]+).*" "\\1.\\2.\\3" CUDNN_VERSION
         "${cudnn_numbers}")
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(CUDNN REQUIRED_VARS CUDNN_LIBRARY CUDNN_INCLUDE_DIR VERSION_VAR CUDNN_VERSION)
if(CUDNN_FOUND AND CUDNN_VERSION VERSION_LESS 9)
  set(CUDNN_FOUND OFF)
endif()
if(CUDNN_FOUND AND NOT TARGET CUDNN::cudnn)
  add_library(CUDNN::cudnn UNKNOWN IMPORTED)
  set_target_properties(CUDNN::cudnn PROPERTIES IMPORTED_LOCATION "${CUDNN_LIBRARY}"
                        INTERFACE_INCLUDE_DIRECTORIES "${CUDNN_INCLUDE_DIR}")
endif()
