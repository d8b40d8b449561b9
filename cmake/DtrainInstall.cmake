# Installs libraries, headers and programs as the CMake package `dtrain`: find_package(dtrain), then link
# dtrain::runtime, dtrain::cluster, …. What was built in is found again on the consumer's machine.
include(CMakePackageConfigHelpers)

get_property(libraries GLOBAL PROPERTY DTRAIN_LIBRARIES)
get_property(programs GLOBAL PROPERTY DTRAIN_PROGRAMS)
set(DTRAIN_PACKAGE_DIR "${CMAKE_INSTALL_LIBDIR}/cmake/dtrain")

install(TARGETS ${libraries} EXPORT dtrainTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(programs)
  install(TARGETS ${programs} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
foreach(room cluster collectives launcher models parallel runtime training worker)
  if(EXISTS "${PROJECT_SOURCE_DIR}/${room}")
    file(GLOB_RECURSE headers RELATIVE "${PROJECT_SOURCE_DIR}" CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/${room}/*.h" "${PROJECT_SOURCE_DIR}/${room}/*.def")
    foreach(header IN LISTS headers)
      get_filename_component(folder "${header}" DIRECTORY)
      install(FILES "${PROJECT_SOURCE_DIR}/${header}" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/dtrain/${folder}")
    endforeach()
  endif()
endforeach()

# Our libraries are static, so whoever links them links what they were built with: the package finds it again.
set(DTRAIN_PACKAGE_DEPENDENCIES "")
function(dtrain_package_needs arguments)
  string(APPEND DTRAIN_PACKAGE_DEPENDENCIES "find_dependency(${arguments})\n")
  set(DTRAIN_PACKAGE_DEPENDENCIES "${DTRAIN_PACKAGE_DEPENDENCIES}" PARENT_SCOPE)
endfunction()
foreach(always Threads cxxopts nlohmann_json fmt ZLIB OpenSSL)
  dtrain_package_needs(${always})
endforeach()
set(DTRAIN_PACKAGE_NAME_ONEDNN "dnnl")
set(DTRAIN_PACKAGE_NAME_GLOO "Gloo")
set(DTRAIN_PACKAGE_NAME_MPI "MPI COMPONENTS CXX")
set(DTRAIN_PACKAGE_FEATURES "")
foreach(feature CUDA NCCL CUDNN)  # inside the module, which nobody links
  if(DTRAIN_HAVE_${feature})
    list(APPEND DTRAIN_PACKAGE_FEATURES ${feature})
  endif()
endforeach()
foreach(feature ONEDNN GLOO MPI)
  if(DTRAIN_HAVE_${feature})
    list(APPEND DTRAIN_PACKAGE_FEATURES ${feature})
    dtrain_package_needs("${DTRAIN_PACKAGE_NAME_${feature}}")
  endif()
endforeach()

# Find modules of our own (libraries that ship no CMake package) travel with it.
file(GLOB find_modules CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/cmake/Find*.cmake")
install(FILES ${find_modules} DESTINATION "${DTRAIN_PACKAGE_DIR}/modules")

install(EXPORT dtrainTargets NAMESPACE dtrain:: DESTINATION "${DTRAIN_PACKAGE_DIR}")
configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/dtrain-config.cmake.in"
  "${PROJECT_BINARY_DIR}/dtrain-config.cmake" INSTALL_DESTINATION "${DTRAIN_PACKAGE_DIR}")
# Before 1.0 a minor release may change interfaces.
write_basic_package_version_file("${PROJECT_BINARY_DIR}/dtrain-config-version.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/dtrain-config.cmake" "${PROJECT_BINARY_DIR}/dtrain-config-version.cmake"
        DESTINATION "${DTRAIN_PACKAGE_DIR}")
