# SPDX-License-Identifier: Apache-2.0
# Compiles for aarch64 Linux with Debian's cross compiler (gcc-aarch64-linux-gnu):
#   cmake -DCMAKE_TOOLCHAIN_FILE=tools/arm64/aarch64.cmake -DSNUG_SYSROOT=FOLDER ...
# SNUG_SYSROOT: a root of Debian or Ubuntu for arm64 with the libraries and their headers; `make arm64` downloads one. Without it
# they are this machine's own for arm64 (dpkg --add-architecture arm64). Programs run in qemu-user's emulator.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc CACHE STRING "the cross compiler")
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(SNUG_SYSROOT "" CACHE PATH "a root for arm64 with the libraries")
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES SNUG_SYSROOT)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64)
if(SNUG_SYSROOT)
  get_filename_component(CMAKE_SYSROOT ${SNUG_SYSROOT} ABSOLUTE)
  list(APPEND CMAKE_CROSSCOMPILING_EMULATOR -L ${CMAKE_SYSROOT})
  set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
  set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
  set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
  set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
  set(ENV{PKG_CONFIG_SYSROOT_DIR} ${CMAKE_SYSROOT})
endif()
set(ENV{PKG_CONFIG_LIBDIR} ${CMAKE_SYSROOT}/usr/lib/aarch64-linux-gnu/pkgconfig:${CMAKE_SYSROOT}/usr/share/pkgconfig)
