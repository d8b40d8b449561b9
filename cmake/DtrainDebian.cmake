# Packages for Debian and Ubuntu: `bash cluster/local/make_packages.sh`, or cpack --config build/package/CPackConfig.cmake.
# dtrain has the programs, the library and the MPI module; dtrain-cuda the CUDA module, where it was built;
# dtrain-emulated-gpus the one of the emulated machine.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME dtrain)
set(CPACK_PACKAGE_CONTACT "The dtrain maintainers <maintainers@dtrain.invalid>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS ${CMAKE_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS})
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_ALL ${DTRAIN_PACKAGES})
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
foreach(package IN LISTS DTRAIN_PACKAGES)
  string(TOUPPER "${package}" name)
  set(CPACK_DEBIAN_${name}_PACKAGE_NAME ${package})
endforeach()
set(CPACK_COMPONENT_DTRAIN_DESCRIPTION "${PROJECT_DESCRIPTION}")
set(CPACK_COMPONENT_DTRAIN-CUDA_DESCRIPTION "Training on NVIDIA GPUs with dtrain
 The module that dtrain loads where a GPU is asked for. It needs cuBLAS, cuDNN
 and NCCL, from NVIDIA's repository or from PyPI's nvidia-* wheels; dtrain
 doctor says which are missing.")
set(CPACK_COMPONENT_DTRAIN-EMULATED-GPUS_DESCRIPTION "GPUs in software, to try dtrain's GPU code without one
 The module that dtrain-launch --emulated-gpus loads.")

# What the programs load is what the package depends on; modules are for machines that have what they load.
set(CPACK_PRE_BUILD_SCRIPTS "${PROJECT_SOURCE_DIR}/cmake/deb_depends.cmake")
set(suggests openmpi-bin dataset-fashion-mnist g++ cmake make libfmt-dev libssl-dev zlib1g-dev)
foreach(pair "ONEDNN=libdnnl-dev" "PCRE2=libpcre2-dev" "UTF8PROC=libutf8proc-dev" "JPEG=libjpeg62-turbo-dev" "PNG=libpng-dev"
        "WEBP=libwebp-dev" "GLOO=libgloo-dev")
  string(REPLACE "=" ";" pair "${pair}")
  list(GET pair 0 feature)
  list(GET pair 1 suggested)
  if(DTRAIN_HAVE_${feature})
    list(APPEND suggests ${suggested})
  endif()
endforeach()
list(JOIN suggests ", " CPACK_DEBIAN_DTRAIN_PACKAGE_SUGGESTS)
set(CPACK_DTRAIN_CUDA_LIBRARY_DIRS "")  # where dpkg-shlibdeps finds what the module needs
if(DTRAIN_HAVE_CUDA)
  string(REGEX MATCH "^[0-9]+" release "${CUDAToolkit_VERSION}")
  set(recommends "libcublas-${release}-0")
  get_target_property(cublas CUDA::cublasLt IMPORTED_LOCATION)
  foreach(library "${cublas}" "${CUDNN_LIBRARY}" "${NCCL_LIBRARY}")
    if(library)
      cmake_path(GET library PARENT_PATH folder)
      list(APPEND CPACK_DTRAIN_CUDA_LIBRARY_DIRS "${folder}")
    endif()
  endforeach()
  if(DTRAIN_HAVE_CUDNN)
    string(APPEND recommends ", libcudnn9-cuda-${release}")
  endif()
  if(DTRAIN_HAVE_NCCL)
    string(APPEND recommends ", libnccl2")
  endif()
  set(CPACK_DEBIAN_DTRAIN-CUDA_PACKAGE_RECOMMENDS "${recommends}")
endif()

# The time that all files in a package have (reproducible-builds.org/specs/source-date-epoch): the commit's.
find_package(Git QUIET)
set(CPACK_DTRAIN_SOURCE_DATE "")
if(GIT_FOUND)
  execute_process(COMMAND "${GIT_EXECUTABLE}" -C "${PROJECT_SOURCE_DIR}" log -1 --format=%ct OUTPUT_VARIABLE CPACK_DTRAIN_SOURCE_DATE
                  ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
endif()
include(CPack)
