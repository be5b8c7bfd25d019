# SPDX-License-Identifier: Apache-2.0
# The program, the library, its header, and what pkg-config --static needs to link with it.
include(GNUInstallDirs)

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
  if(NOT folder IN_LIST CMAKE_C_IMPLICIT_LINK_DIRECTORIES)
    string(APPEND SNUG_PC_LIBS " -L${folder}")
  endif()
  string(APPEND SNUG_PC_LIBS " -l${name}")
endforeach()

if(SNUG_PULLS)
  set(SNUG_PC_REQUIRES " nettle")
endif()
configure_file(tools/snug.pc.in snug.pc @ONLY)
install(TARGETS snug_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(TARGETS snug ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES include/snug.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES ${CMAKE_BINARY_DIR}/snug.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
if(TARGET snug_cuda)
  install(TARGETS snug_cuda LIBRARY DESTINATION lib/snug) # where backend/plugin.c looks, from the program's folder
endif()
if(TARGET snug_mpi)
  install(TARGETS snug_mpi LIBRARY DESTINATION lib/snug) # where dist/process_group.c looks
endif()
