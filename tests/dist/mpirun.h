/* SPDX-License-Identifier: Apache-2.0 */
/* For tests that run build/snug on several ranks of this machine, where mpirun is installed and the MPI plug-in was
   built. */
#ifndef SNUG_TESTS_MPIRUN_H
#define SNUG_TESTS_MPIRUN_H

#include <dirent.h>

#include "dist/mpi/plugin.h"
#include "program.h"

#define SNUG SNUG_BINARY_DIR "/snug"
#define TRAIN                                                                                                          \
    "train --use_cpu --tokenizer_name model --per_device_train_batch_size 8 --learning_rate 1e-3 --threads 1 "         \
    "--logging_steps 1 "
#define TINY TRAIN "--config_name model --train_file train.csv --validation_file dev.csv --eval_strategy epoch "

static const char *mpirun = "mpirun";
static bool is_open_mpi, skips;

/* Whether runs on several ranks can be tested here. */
static inline void find_mpirun(void) {
    char line[128] = "";
    if (access("/usr/bin/mpirun.openmpi", X_OK) == 0) mpirun = "mpirun.openmpi"; /* Debian's, where both are */
    snprintf(line, sizeof line, "%s --version 2> /dev/null", mpirun);
    FILE *pipe = popen(line, "r");
    assert_non_null(pipe);
    const bool there = fgets(line, sizeof line, pipe);
    pclose(pipe);
    is_open_mpi = strstr(line, "Open MPI") || strstr(line, "OpenRTE");
    const char *plugin = is_open_mpi ? SNUG_BINARY_DIR "/" SNUG_MPI_OPENMPI : SNUG_BINARY_DIR "/" SNUG_MPI_MPICH;
    skips = !there || access(plugin, R_OK) != 0;
    if (skips)
        print_message("skipped: several ranks need mpirun and an MPI library: install openmpi-bin and "
                      "libopenmpi-dev, and configure again\n");
    setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 0); /* containers may forbid the system call */
    /* Open MPI looks for network adapters, GPUs and other PCI devices, 0.2 s and more at each start. On one host it
     * needs none. */
    setenv("OMPI_MCA_pml", "ob1", 0);
    setenv("OMPI_MCA_btl", "self,vader", 0);
    setenv("PMIX_MCA_gds", "hash", 0);
    setenv("HWLOC_COMPONENTS", "-linuxio,-pci", 0);
    setenv("HWLOC_PLUGINS_PATH", "/nowhere", 0);
    if (SANITIZED) {
        static const char no_leaks[] = ":detect_leaks=0"; /* MPI keeps memory until the process ends */
        const char *given = getenv("ASAN_OPTIONS");
        char options[256];
        if (given && strstr(given, no_leaks)) return; /* of the test before */
        snprintf(options, sizeof options, "%s%s", given ? given : "", no_leaks);
        setenv("ASAN_OPTIONS", options, 1);
    }
}

/* Starts these words in the test's folder, with stdout and stderr in files. */
static inline pid_t start_words(const struct fixture *f, const char *words) {
    unlink(path_of(f, "stderr"));
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child) return child;
    char copy[4096], *rest = copy, *arguments[160];
    int count = 0;
    if (chdir(f->folder) != 0 || !freopen("/dev/null", "r", stdin) || !freopen("stdout", "w", stdout) ||
        !freopen("stderr", "w", stderr))
        _exit(125);
    snprintf(copy, sizeof copy, "%s", words);
    while (count < 159 && (arguments[count] = strsep(&rest, " ")))
        if (*arguments[count]) count++;
    arguments[count] = NULL;
    execvp(arguments[0], arguments);
    _exit(127);
}

/* More ranks than cores, not bound to them, and by root in containers. */
static inline pid_t start_ranks(const struct fixture *f, const char *words) {
    char command[4096];
    snprintf(command, sizeof command, "%s %s%s", mpirun,
             is_open_mpi ? "--allow-run-as-root --oversubscribe --bind-to none " : "", words);
    return start_words(f, command);
}

static inline int run_ranks(const struct fixture *f, const char *words) { return wait_for(start_ranks(f, words)); }

static inline void run_ranks_well(const struct fixture *f, int ranks, const char *words) {
    char command[2048];
    snprintf(command, sizeof command, "-n %d " SNUG " %s", ranks, words);
    const int code = run_ranks(f, command);
    if (code != 0) fail_msg("mpirun %s: exit code %d: %s", command, code, output_of(f, "stderr"));
}

/* Whether the folder has an entry whose name begins like this: one that is not written to its end. */
static inline bool has_unfinished(const struct fixture *f, const char *folder, const char *begin) {
    DIR *entries = opendir(path_of(f, "%s", folder));
    bool found = false;
    for (struct dirent *entry; entries && !found && (entry = readdir(entries));)
        found = strncmp(entry->d_name, begin, strlen(begin)) == 0;
    if (entries) closedir(entries);
    return found;
}

/* The ranks ended with this code and one message, which contains the parts. */
static inline void assert_said(const struct fixture *f, int code, int expected, const char *const *parts) {
    char *text = output_of(f, "stderr");
    if (code != expected) fail_msg("exit code %d instead of %d: %s", code, expected, text);
    if (count_of(text, "snug: ") != 1) fail_msg("not one message: %s", text);
    for (; *parts; parts++) assert_contains(text, *parts);
    free(text);
}

#endif
