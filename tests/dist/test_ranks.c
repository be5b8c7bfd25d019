/* SPDX-License-Identifier: Apache-2.0 */
/* Which rank a process is, from the variables of its launcher. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dist/ranks.h"
#include "test.h"

enum { VARIABLES = 8 };

static const char *const all[] = {"RANK",
                                  "WORLD_SIZE",
                                  "LOCAL_RANK",
                                  "LOCAL_WORLD_SIZE",
                                  "PMI_RANK",
                                  "PMI_SIZE",
                                  "MPI_LOCALRANKID",
                                  "MPI_LOCALNRANKS",
                                  "SLURM_NTASKS",
                                  "SLURM_PROCID",
                                  "SLURM_STEP_NUM_TASKS",
                                  "SLURM_LOCALID",
                                  "SLURM_STEP_NODELIST",
                                  "OMPI_COMM_WORLD_RANK",
                                  "OMPI_COMM_WORLD_SIZE",
                                  "OMPI_COMM_WORLD_LOCAL_RANK",
                                  "OMPI_COMM_WORLD_LOCAL_SIZE"};

/* Reads an environment with these variables alone, "NAME=VALUE". */
static snug_status find(const char *const *variables, struct snug_ranks *ranks, char *message, size_t size) {
    snug_context *ctx;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) unsetenv(all[i]);
    for (int i = 0; i < VARIABLES && variables[i]; i++) {
        char name[64];
        const char *equals = strchr(variables[i], '=');
        snprintf(name, sizeof name, "%.*s", (int)(equals - variables[i]), variables[i]);
        setenv(name, equals + 1, 1);
    }
    assert_int_equal(snug_context_create(&ctx), SNUG_OK);
    const snug_status status = snug_ranks_find(ctx, ranks);
    snprintf(message, size, "%s", snug_error_message(ctx));
    snug_context_destroy(ctx);
    return status;
}

TEST(test_launchers) {
    static const struct {
        const char *variables[VARIABLES];
        const char *launcher;
        int rank, size, local_rank, local_size;
    } cases[] = {
        {{NULL}, NULL, 0, 1, 0, 1},
        {{"RANK=3", "WORLD_SIZE=4", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2"}, "torchrun", 3, 4, 1, 2},
        {{"RANK=0", "WORLD_SIZE=1", "LOCAL_RANK=0"}, "torchrun", 0, 1, 0, 0},
        {{"RANK=", "WORLD_SIZE=", "LOCAL_RANK="}, NULL, 0, 1, 0, 1},
        {{"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_LOCAL_RANK=1",
          "OMPI_COMM_WORLD_LOCAL_SIZE=2"},
         "Open MPI",
         1,
         2,
         1,
         2},
        {{"PMI_RANK=5", "PMI_SIZE=8", "MPI_LOCALRANKID=1", "MPI_LOCALNRANKS=4"}, "MPICH", 5, 8, 1, 4},
        {{"SLURM_PROCID=2", "SLURM_STEP_NUM_TASKS=4", "SLURM_LOCALID=0", "SLURM_STEP_NODELIST=n[1-2]"},
         "Slurm",
         2,
         4,
         0,
         0},
        /* a batch script: one process, not a step of four */
        {{"SLURM_PROCID=0", "SLURM_NTASKS=4", "SLURM_LOCALID=0"}, NULL, 0, 1, 0, 1},
        /* mpirun in a step of one task */
        {{"SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS=1", "SLURM_STEP_NODELIST=n1", "OMPI_COMM_WORLD_RANK=1",
          "OMPI_COMM_WORLD_SIZE=2"},
         "Open MPI",
         1,
         2,
         0,
         0},
        /* srun --mpi=pmi2 */
        {{"SLURM_PROCID=5", "SLURM_STEP_NUM_TASKS=8", "SLURM_LOCALID=1", "SLURM_STEP_NODELIST=n[1-2]", "PMI_RANK=5",
          "PMI_SIZE=8"},
         "Slurm",
         5,
         8,
         1,
         0},
        /* mpiexec in a step of two tasks: one starts ranks on each host */
        {{"SLURM_PROCID=1", "SLURM_STEP_NUM_TASKS=2", "SLURM_LOCALID=0", "SLURM_STEP_NODELIST=n[1-2]", "PMI_RANK=1",
          "PMI_SIZE=4", "MPI_LOCALRANKID=1"},
         "MPICH",
         1,
         4,
         1,
         0},
        {{"SLURM_PROCID=1", "SLURM_STEP_NUM_TASKS=2", "SLURM_STEP_NODELIST=n[1-2]", "PMI_RANK=0", "PMI_SIZE=2"},
         "MPICH",
         0,
         2,
         0,
         0},
        {{"SLURM_STEP_NUM_TASKS=2", "SLURM_STEP_NODELIST=n[1-2]", "PMI_RANK=1", "PMI_SIZE=2"}, "MPICH", 1, 2, 0, 0},
        /* a script that sets torchrun's variables from mpirun's */
        {{"RANK=1", "WORLD_SIZE=2", "OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2"}, "torchrun", 1, 2, 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct snug_ranks ranks;
        char message[512];
        if (find(cases[i].variables, &ranks, message, sizeof message) != SNUG_OK) fail_msg("case %zu: %s", i, message);
        if (cases[i].launcher)
            assert_string_equal(ranks.launcher, cases[i].launcher);
        else
            assert_null(ranks.launcher);
        assert_int_equal(ranks.rank, cases[i].rank);
        assert_int_equal(ranks.size, cases[i].size);
        assert_int_equal(ranks.local_rank, cases[i].local_rank);
        assert_int_equal(ranks.local_size, cases[i].local_size);
        assert_true(strlen(ranks.host) > 0);
    }
}

TEST(test_refusals) {
    static const struct {
        const char *variables[VARIABLES];
        const char *message; /* a part of it */
    } cases[] = {
        {{"WORLD_SIZE=2"}, "RANK is not set"},
        {{"RANK=0"}, "WORLD_SIZE is not set"},
        {{"LOCAL_RANK=1"}, "RANK is not set"},
        {{"LOCAL_WORLD_SIZE=2"}, "RANK is not set"},
        {{"RANK=2", "WORLD_SIZE=2"}, "RANK is 2, and WORLD_SIZE is 2: ranks are numbered from 0 to 1"},
        {{"RANK=-1", "WORLD_SIZE=2"}, "RANK is -1: it must be a whole number"},
        {{"RANK=one", "WORLD_SIZE=2"}, "RANK is one"},
        {{"RANK=0", "WORLD_SIZE=0"}, "WORLD_SIZE is 0: it must be a whole number from 1"},
        {{"RANK=0", "WORLD_SIZE=99999999999999999999"}, "WORLD_SIZE is 99999999999999999999"},
        {{"RANK=0", "WORLD_SIZE=2", "LOCAL_RANK=1"}, "LOCAL_RANK is 1, and RANK is 0"},
        {{"RANK=1", "WORLD_SIZE=2", "LOCAL_RANK=x"}, "LOCAL_RANK is x"},
        {{"RANK=1", "WORLD_SIZE=4", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=1"},
         "LOCAL_RANK is 1, and LOCAL_WORLD_SIZE is 1"},
        {{"RANK=1", "WORLD_SIZE=2", "LOCAL_WORLD_SIZE=3"}, "LOCAL_WORLD_SIZE is 3, and WORLD_SIZE is 2"},
        {{"RANK=1", "WORLD_SIZE=2", "LOCAL_WORLD_SIZE=0"}, "LOCAL_WORLD_SIZE is 0"},
        {{"RANK=0", "WORLD_SIZE=2", "OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2"},
         "RANK is 0 and WORLD_SIZE is 2, but OMPI_COMM_WORLD_RANK is 1"},
        {{"RANK=1", "WORLD_SIZE=4", "PMI_RANK=1", "PMI_SIZE=2"}, "PMI_SIZE is 2; unset those of torchrun or those of"},
        {{"RANK=1", "WORLD_SIZE=4", "PMI_RANK=1"}, "PMI_SIZE is not set"},
        {{"PMI_SIZE=2", "SLURM_PROCID=1", "SLURM_STEP_NUM_TASKS=2", "SLURM_STEP_NODELIST=n1"}, "PMI_RANK is not set"},
        {{"SLURM_PROCID=4", "SLURM_STEP_NUM_TASKS=4", "SLURM_STEP_NODELIST=n1"}, "SLURM_PROCID is 4"},
        {{"SLURM_PROCID=1", "SLURM_STEP_NODELIST=n1"}, "SLURM_STEP_NUM_TASKS is not set"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct snug_ranks ranks;
        char message[512];
        assert_int_equal(find(cases[i].variables, &ranks, message, sizeof message), SNUG_E_USAGE);
        if (!strstr(message, cases[i].message)) fail_msg("case %zu: %s", i, message);
    }
}

TEST_MAIN(NULL, NULL)
