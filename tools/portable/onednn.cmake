# SPDX-License-Identifier: Apache-2.0
# The part of oneDNN that snug calls, dnnl_sgemm() on x86-64, as an archive: a tenth of its files and a fiftieth of its code. It is
# compiled from Debian's source package (tools/portable/onednn-source), since Debian has no archive of it.
enable_language(CXX)
set(onednn ${CMAKE_BINARY_DIR}/onednn)
if(NOT EXISTS ${onednn}/source/LICENSE)
  execute_process(COMMAND ${CMAKE_SOURCE_DIR}/tools/portable/onednn-source ${onednn}/source COMMAND_ERROR_IS_FATAL ANY)
endif()
file(STRINGS ${onednn}/source/CMakeLists.txt version REGEX "set\\(PROJECT_VERSION ")
if(NOT version MATCHES "\"(([0-9]+)\\.([0-9]+)\\.([0-9]+))\"")
  message(FATAL_ERROR "${onednn}/source/CMakeLists.txt has no version")
endif()
set(SNUG_ONEDNN_VERSION ${CMAKE_MATCH_1})
set(DNNL_VERSION_MAJOR ${CMAKE_MATCH_2})
set(DNNL_VERSION_MINOR ${CMAKE_MATCH_3})
set(DNNL_VERSION_PATCH ${CMAKE_MATCH_4})
set(DNNL_VERSION_HASH debian)
set(DNNL_CPU_RUNTIME OMP)
set(DNNL_CPU_THREADING_RUNTIME OMP)
set(DNNL_GPU_RUNTIME NONE)
set(DNNL_GPU_VENDOR NONE)
set(BUILD_GEMM_KERNELS_ALL ON)
set(BUILD_PRIMITIVE_CPU_ISA_ALL ON)
foreach(name config version version_hash)
  configure_file(${onednn}/source/include/oneapi/dnnl/dnnl_${name}.h.in ${onednn}/include/oneapi/dnnl/dnnl_${name}.h)
endforeach()

set(folder ${onednn}/source/src)
file(GLOB generators ${folder}/cpu/x64/gemm/f32/*.cpp)
file(GLOB sources ${folder}/common/dnnl_debug*.cpp ${folder}/cpu/gemm/gemm.cpp ${folder}/cpu/gemm/f32/*.cpp
     ${folder}/cpu/x64/gemm/gem*_driver.cpp ${folder}/cpu/x64/gemm/gemm_info.cpp ${folder}/cpu/jit_utils/*.cpp
     ${folder}/cpu/jit_utils/linux_perf/*.cpp)
foreach(name common/gemm common/memory_debug common/utils common/verbose cpu/platform cpu/x64/cpu_isa_traits cpu/x64/jit_generator
             cpu/x64/gemm/s8x8s32/jit_avx512_core_gemv_s8x8s32)
  list(APPEND sources ${folder}/${name}.cpp)
endforeach()
add_library(dnnl STATIC ${sources} ${generators})
target_include_directories(dnnl PUBLIC ${onednn}/include ${onednn}/source/include PRIVATE ${folder})
target_compile_definitions(dnnl PRIVATE DNNL_X64=1 DNNL_ENABLE_JIT_PROFILING=0 DNNL_ENABLE_MAX_CPU_ISA DISABLE_VERBOSE NDEBUG
                                        __STDC_CONSTANT_MACROS __STDC_LIMIT_MACROS)
# What is left out is referenced by functions that the linker drops (--gc-sections).
target_compile_options(dnnl PRIVATE -O2 -w -fopenmp -fvisibility=hidden -ffunction-sections -fdata-sections)
# These run once, to write a kernel; inlining their 100,000 calls takes eight times as long as compiling all of snug.
set_source_files_properties(${generators} PROPERTIES COMPILE_OPTIONS "-O1;-fno-inline")
set_target_properties(dnnl PROPERTIES CXX_STANDARD 11 POSITION_INDEPENDENT_CODE ON)
add_library(DNNL::dnnl ALIAS dnnl)
