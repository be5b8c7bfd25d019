# SPDX-License-Identifier: Apache-2.0
# SNUG_PORTABLE: the program and the library run on every x86-64 Linux with glibc 2.28 or later and need no other library: for the
# wheels and the tarball (tools/portable/pack). oneDNN is compiled (onednn.cmake), the other libraries are Debian's archives, and the
# linker sees glibc as it was (old-glibc). MPI is left out: its plug-ins are for the MPI of one machine.
option(SNUG_PORTABLE "all libraries inside, for glibc 2.28 and later" OFF)
if(NOT SNUG_PORTABLE)
  return()
endif()
set(SNUG_MPI OFF)
set(CMAKE_FIND_LIBRARY_SUFFIXES .a)
set(glibc ${CMAKE_BINARY_DIR}/glibc)
execute_process(COMMAND ${CMAKE_SOURCE_DIR}/tools/portable/old-glibc 2.28 ${glibc} ${CMAKE_C_COMPILER} COMMAND_ERROR_IS_FATAL ANY)
# Before glibc 2.34 these were libraries of their own, which the program must name.
add_link_options(-B${glibc}/ LINKER:--push-state,--no-as-needed,${glibc}/libpthread.so.0,${glibc}/libdl.so.2,${glibc}/librt.so.1,--pop-state
                 LINKER:--gc-sections # drops what oneDNN has beside its fp32 matmul
                 LINKER:--allow-shlib-undefined) # libgcc_s.so.1 of this machine needs its own glibc
execute_process(COMMAND ${CMAKE_SOURCE_DIR}/tools/portable/libgomp ${CMAKE_BINARY_DIR}/libgomp ${CMAKE_C_COMPILER} COMMAND_ERROR_IS_FATAL ANY)
set(OpenMP_gomp_LIBRARY ${CMAKE_BINARY_DIR}/libgomp/libgomp.a)
# Debian's archive of Jansson is for programs only, too: it compares a file with stdin, to name it in its messages.
execute_process(COMMAND ${CMAKE_C_COMPILER} -print-file-name=libjansson.a OUTPUT_VARIABLE jansson OUTPUT_STRIP_TRAILING_WHITESPACE)
set(pkgcfg_lib_JANSSON_jansson ${glibc}/libjansson.a CACHE INTERNAL "")
if(${jansson} IS_NEWER_THAN ${pkgcfg_lib_JANSSON_jansson}) # or there is none yet; a new one would link all again
  execute_process(COMMAND ${CMAKE_OBJCOPY} --redefine-sym stdin=snug_no_file ${jansson} ${pkgcfg_lib_JANSSON_jansson} COMMAND_ERROR_IS_FATAL ANY)
endif()
if(SNUG_ONEDNN) # not for the CUDA plug-in alone
  include(tools/portable/onednn.cmake)
endif()
