# Installs libraries, headers and programs as the CMake package `dtrain` (find_package(dtrain); dtrain::runtime, …).
include(CMakePackageConfigHelpers)

get_property(libraries GLOBAL PROPERTY DTRAIN_LIBRARIES)
get_property(programs GLOBAL PROPERTY DTRAIN_PROGRAMS)

install(TARGETS ${libraries} EXPORT dtrainTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(programs)
  install(TARGETS ${programs} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
foreach(room cluster collectives launcher models runtime)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/${room} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/dtrain
          FILES_MATCHING PATTERN "*.h" PATTERN "lab" EXCLUDE)
endforeach()
