# SPDX-License-Identifier: Apache-2.0
# The program, the library as an archive and as a shared library, its header, and what pkg-config and CMake need to link
# with either: snug, snug-static; snug::snug, snug::static.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# Relative to the .pc file, so that it works with DESTDIR, --prefix and a moved tree.
file(RELATIVE_PATH SNUG_PC_PREFIX ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
string(REGEX REPLACE "/$" "" SNUG_PC_PREFIX ${SNUG_PC_PREFIX})

# Libraries without a pkg-config file: name, and folder if the linker does not search it.
set(libraries ${DNNL_LIBRARY})
foreach(name ${OpenMP_C_LIB_NAMES})
  list(APPEND libraries ${OpenMP_${name}_LIBRARY})
endforeach()
foreach(library ${libraries})
  get_filename_component(folder ${library} DIRECTORY)
  get_filename_component(name ${library} NAME_WE)
  string(REGEX REPLACE "^lib" "" name ${name})
  list(APPEND SNUG_CMAKE_LIBS ${library})
  if(NOT folder IN_LIST CMAKE_C_IMPLICIT_LINK_DIRECTORIES)
    string(APPEND SNUG_PC_LIBS " -L${folder}")
  endif()
  string(APPEND SNUG_PC_LIBS " -l${name}")
endforeach()

set(SNUG_PC_REQUIRES "jansson libutf8proc libxxhash zlib")
if(SNUG_PORTABLE)
  set(SNUG_PC_REQUIRES)
  set(SNUG_PC_LIBS)
elseif(SNUG_PULLS)
  string(APPEND SNUG_PC_REQUIRES " nettle")
endif()
configure_file(tools/package/snug.pc.in snug.pc @ONLY)
configure_file(tools/package/snug-static.pc.in snug-static.pc @ONLY)
string(REPLACE " " ";" SNUG_CMAKE_REQUIRES "${SNUG_PC_REQUIRES}")
set(SNUG_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/snug)
configure_package_config_file(tools/package/snugConfig.cmake.in snugConfig.cmake INSTALL_DESTINATION ${SNUG_CMAKE_DIR}
                              PATH_VARS CMAKE_INSTALL_INCLUDEDIR CMAKE_INSTALL_LIBDIR)
write_basic_package_version_file(snugConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(TARGETS snug_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
if(NOT SNUG_PORTABLE) # whose shared library has all inside; the archive needs those of this machine
  install(TARGETS snug ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(FILES ${CMAKE_BINARY_DIR}/snug-static.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endif()
install(TARGETS snug_shared LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES include/snug.h include/snug_generate.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES ${CMAKE_BINARY_DIR}/snug.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(FILES ${CMAKE_BINARY_DIR}/snugConfig.cmake ${CMAKE_BINARY_DIR}/snugConfigVersion.cmake DESTINATION ${SNUG_CMAKE_DIR})
if(TARGET snug_cuda)
  install(TARGETS snug_cuda LIBRARY DESTINATION lib/snug) # where backend/plugin.c looks, from the program's folder
endif()
if(SNUG_MPI_PLUGINS)
  install(TARGETS ${SNUG_MPI_PLUGINS} LIBRARY DESTINATION lib/snug) # where dist/process_group.c looks
endif()
