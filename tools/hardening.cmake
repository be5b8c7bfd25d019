# SPDX-License-Identifier: Apache-2.0
# What makes a defect in a parser harder to exploit: checked copies, stack canaries, addresses that are not known in
# advance, tables that cannot be overwritten. tests/test_hardening.sh looks for all of it in the built files.
# No kernel is left out. With and without in turn, best against best, one thread of an AMD EPYC with AVX-512 that other jobs
# shared: matmuls in fp32 0.98 and in bf16 1.00 times the time (geometric means of 30 shapes), the other kernels 0.97 in sum, a
# training's processor time 1.00 (medians of 7 pairs). Optimizers 1.01, single ones 0.9 to 1.1 and not the same ones each time;
# plain SGD took 1.04 to 1.05 in 3 of 4 rounds, though its loop has the same instructions.
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

# Where the compiler has them for this processor: -fcf-protection is for x86.
foreach(flag stack-protector-strong stack-clash-protection cf-protection)
  string(MAKE_C_IDENTIFIER "SNUG_HAS_${flag}" found)
  check_c_compiler_flag(-f${flag} ${found})
  if(${found})
    list(APPEND SNUG_HARDENING_FLAGS -f${flag})
  endif()
endforeach()
add_compile_options("$<$<COMPILE_LANGUAGE:C>:${SNUG_HARDENING_FLAGS}>")
check_linker_flag(C -Wl,-z,relro,-z,now SNUG_HAS_RELRO)
if(SNUG_HAS_RELRO)
  add_link_options(-Wl,-z,relro,-z,now)
endif()

# It needs an optimising build. Sanitizers check more, and do not know the checked functions.
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
