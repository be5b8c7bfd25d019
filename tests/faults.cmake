# SPDX-License-Identifier: Apache-2.0
# Tests in which calls fail: the linker redirects the calls that tests/faults.c wraps, and links the commands in, so that
# they run in a forked process instead of a new one.
set(calls malloc calloc realloc free munmap close closedir posix_memalign aligned_alloc strdup vasprintf __vasprintf_chk open_memstream mmap
    pthread_create realpath newlocale open openat mkostemp fopen fdopen tmpfile memfd_create read pread pwrite fread fgets fwrite fflush fclose
    fsync fseeko ftruncate posix_fallocate renameat renameat2 mkdirat unlink unlinkat opendir fdopendir readdir statvfs flock
    sync_file_range)
list(TRANSFORM calls PREPEND "-Wl,--wrap=")
set(commands ${cli})
list(FILTER commands EXCLUDE REGEX /main\\.c$)
foreach(name test_failures test_kills)
  target_sources(${name} PRIVATE tests/faults.c ${commands})
  target_include_directories(${name} PRIVATE src/cli)
  target_compile_definitions(${name} PRIVATE SNUG_CURL=$<BOOL:${SNUG_PULLS}>)
  target_link_options(${name} PRIVATE ${calls})
endforeach()
