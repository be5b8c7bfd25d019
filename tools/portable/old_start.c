/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The start of a program that was linked with glibc 2.34 or later and runs on an earlier one. From 2.34 on, glibc runs
 * the program's constructors by itself; before, it called a function that the program's start file passed.
 */
#include <stddef.h>

typedef int main_fn(int argc, char **argv, char **environment);
typedef void constructor_fn(int argc, char **argv, char **environment);
int __libc_start_main(main_fn *program, int argc, char **argv, main_fn *construct, void (*destruct)(void),
                      void (*end)(void), void *stack);
int snug_old_start(main_fn *program, int argc, char **argv, main_fn *construct, void (*destruct)(void),
                   void (*end)(void), void *stack);

/* Of the linker, and of glibc's start files. */
extern constructor_fn *const __preinit_array_start[], *const __preinit_array_end[];
extern constructor_fn *const __init_array_start[], *const __init_array_end[];
void _init(void);

static int run_constructors(int argc, char **argv, char **environment) {
    for (constructor_fn *const *each = __preinit_array_start; each < __preinit_array_end; each++)
        (*each)(argc, argv, environment);
    _init();
    for (constructor_fn *const *each = __init_array_start; each < __init_array_end; each++)
        (*each)(argc, argv, environment);
    return 0;
}

int snug_old_start(main_fn *program, int argc, char **argv, main_fn *construct, void (*destruct)(void),
                   void (*end)(void), void *stack) {
    return __libc_start_main(program, argc, argv, construct ? construct : run_constructors, destruct, end, stack);
}
