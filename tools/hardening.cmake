# SPDX-License-Identifier: Apache-2.0
# Hardening: checked copies, stack canaries, position-independent code, read-only relocations, so that a defect in a parser
# is harder to exploit. tests/package/test_hardening.sh checks the built files.
# It applies to the kernels too. Time with it, divided by time without (one thread of a shared AMD EPYC with AVX-512, best of
# alternating runs): matmuls 0.98 in fp32 and 1.00 in bf16 (geometric means of 30 shapes), other kernels 0.97 in total,
# optimizers 1.01, a training 1.00 (processor time, median of 7 pairs). Plain SGD took 1.04 to 1.05 in 3 of 4 rounds, with
# the same instructions in its loop.
include(CheckCCompilerFlag)
include(CheckCSourceCompiles)
include(CheckLinkerFlag)
include(CheckPIESupported)

# Position-independent programs (CMake adds -pie by itself then) and objects for plug-ins.
check_pie_supported(LANGUAGES C)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

option(SNUG_HARDENING "stack protection, checked copies, control-flow protection, full RELRO" ON)
if(NOT SNUG_HARDENING)
  return()
endif()

# Flags that depend on the target: -fcf-protection is for x86. clang takes -mbranch-protection there, too, and warns in every file.
set(flags -fstack-protector-strong -fstack-clash-protection -fcf-protection)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
  list(APPEND flags -mbranch-protection=standard)
endif()
foreach(flag ${flags})
  string(MAKE_C_IDENTIFIER "SNUG_HAS_${flag}" found)
  check_c_compiler_flag(${flag} ${found})
  if(${found})
    list(APPEND SNUG_HARDENING_FLAGS ${flag})
  endif()
endforeach()
add_compile_options("$<$<COMPILE_LANGUAGE:C>:${SNUG_HARDENING_FLAGS}>")
check_linker_flag(C -Wl,-z,relro,-z,now SNUG_HAS_RELRO)
if(SNUG_HAS_RELRO)
  add_link_options(-Wl,-z,relro,-z,now)
endif()

# Checked functions need an optimising build. Sanitizers check more, and do not intercept them.
if(NOT SNUG_SANITIZE AND NOT SNUG_FUZZ)
  foreach(level 3 2) # 3 needs gcc 12, or clang 9, and glibc 2.34
    set(CMAKE_REQUIRED_FLAGS "-O2 -Werror -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=${level}")
    check_c_source_compiles("#include <stdio.h>\nint main(void) { return 0; }" SNUG_HAS_FORTIFY_${level})
    unset(CMAKE_REQUIRED_FLAGS)
    if(SNUG_HAS_FORTIFY_${level})
      set(optimised "$<AND:$<COMPILE_LANGUAGE:C>,$<CONFIG:Release,RelWithDebInfo,MinSizeRel>>")
      add_compile_options("$<${optimised}:-U_FORTIFY_SOURCE;-D_FORTIFY_SOURCE=${level}>")
      break()
    endif()
  endforeach()
endif()
