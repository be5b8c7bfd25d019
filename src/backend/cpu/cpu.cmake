# SPDX-License-Identifier: Apache-2.0
# The kernels are portable C, compiled once for each instruction set; cpu.c picks one table of them at run time.
# Elsewhere than on x86-64 there is one variant, for the compiler's own target.
set(folder ${CMAKE_SOURCE_DIR}/src/backend/cpu)
set(common ${folder}/cpu.c ${folder}/gemm.c ${folder}/workspace.c)
file(GLOB kernels CONFIGURE_DEPENDS ${folder}/*.c)
list(REMOVE_ITEM kernels ${common})

add_library(snug_backend_cpu OBJECT ${common})
set(targets snug_backend_cpu)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|amd64|AMD64)$")
  set(variants v2 v3 v4)
  set(flags_v2 -march=x86-64-v2)
  set(flags_v3 -march=x86-64-v3)
  set(flags_v4 -march=x86-64-v4 -mprefer-vector-width=512)
else()
  set(variants generic)
endif()
foreach(isa ${variants})
  set(target snug_backend_cpu_${isa})
  add_library(${target} OBJECT ${kernels})
  target_compile_definitions(${target} PRIVATE SNUG_ISA=${isa})
  # These flags change results by rounding only: NaN and infinity are preserved.
  target_compile_options(${target} PRIVATE ${flags_${isa}} -O3 -ffp-contract=fast -fno-math-errno -fno-trapping-math)
  list(APPEND targets ${target})
endforeach()
# Two files that must round alike: they write fused multiply-adds explicitly.
set_source_files_properties(${folder}/adam.c ${folder}/lazy_adam.c PROPERTIES COMPILE_OPTIONS -ffp-contract=off)
if(CMAKE_C_COMPILER_ID STREQUAL Clang AND CMAKE_C_COMPILER_VERSION MATCHES "^16\\.")
  # clang 16.0.6 crashes in this pass, on the cast of a broadcast to bf16 in avx512_block().
  set_source_files_properties(${folder}/gemm.c PROPERTIES COMPILE_OPTIONS "-mllvm;-disable-vector-combine")
endif()
foreach(target ${targets})
  target_include_directories(${target} PUBLIC ${CMAKE_SOURCE_DIR}/include ${CMAKE_SOURCE_DIR}/src)
  target_link_libraries(${target} PUBLIC Threads::Threads m OpenMP::OpenMP_C DNNL::dnnl)
  set_property(GLOBAL APPEND PROPERTY SNUG_ROOMS ${target})
endforeach()
