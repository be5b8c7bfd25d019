/* SPDX-License-Identifier: Apache-2.0 */
#include "dist/ranks.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct launcher {
    const char *name;
    const char *rank, *size, *local_rank, *local_size; /* local_size: NULL if it has no such variable */
    const char *mark;                                  /* a variable without which the others do not count, or NULL */
};

/* SLURM_NTASKS is that of the allocation and is also set in a batch script, which is a single process. A step, which
 * srun starts, has the list of its nodes and its own number of tasks. */
static const struct launcher launchers[] = {
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", NULL},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE", NULL},
    {"MPICH", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", NULL},
    {"Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", NULL, "SLURM_STEP_NODELIST"},
};
enum { LAUNCHERS = sizeof launchers / sizeof *launchers, PMI = LAUNCHERS - 2, SLURM = LAUNCHERS - 1 };

/* An empty variable counts as unset. */
static const char *value_of(const char *name) {
    const char *value = name ? getenv(name) : NULL;
    return value && *value ? value : NULL;
}

static snug_status read_number(snug_context *ctx, const char *name, int least, int *out) {
    const char *text = value_of(name);
    char *end;
    const long number = strtol(text, &end, 10);
    if (strspn(text, "0123456789") != strlen(text) || number < least || number > SNUG_RANKS_MOST)
        return snug_fail(ctx, SNUG_E_USAGE,
                         "the environment variable %s is %s: it must be a whole number from %d to %d; unset it, or "
                         "start snug with torchrun, mpirun or srun, which set it",
                         name, text, least, (int)SNUG_RANKS_MOST);
    *out = (int)number;
    return SNUG_OK;
}

/* Whether any variable of the launcher is set. */
static bool is_there(const struct launcher *l) {
    if (l->mark && !value_of(l->mark)) return false;
    return value_of(l->rank) || value_of(l->size) || value_of(l->local_rank) || value_of(l->local_size);
}

static snug_status fail_order(snug_context *ctx, const char *rank, int number, const char *size, int count) {
    return snug_fail(ctx, SNUG_E_USAGE,
                     "the environment variable %s is %d, and %s is %d: ranks are numbered from 0 to %d", rank, number,
                     size, count, count - 1);
}

static snug_status read_launcher(snug_context *ctx, const struct launcher *l, struct snug_ranks *out) {
    const char *const needed[] = {l->rank, l->size};
    for (int i = 0; i < 2; i++)
        if (!value_of(needed[i]))
            return snug_fail(ctx, SNUG_E_USAGE,
                             "the environment has variables of %s (%s, %s, %s), but %s is not set: unset them for a "
                             "single process, or start snug with torchrun, mpirun or srun",
                             l->name, l->rank, l->size, l->local_rank, needed[i]);
    out->launcher = l->name;
    out->size_source = l->size;
    RETURN_IF_ERROR(read_number(ctx, l->size, 1, &out->size));
    RETURN_IF_ERROR(read_number(ctx, l->rank, 0, &out->rank));
    if (out->rank >= out->size) return fail_order(ctx, l->rank, out->rank, l->size, out->size);
    out->local_size = 0;
    out->local_rank = 0;
    if (value_of(l->local_size)) RETURN_IF_ERROR(read_number(ctx, l->local_size, 1, &out->local_size));
    if (out->local_size > out->size)
        return snug_fail(ctx, SNUG_E_USAGE,
                         "the environment variable %s is %d, and %s is %d: a host cannot have more ranks than the run",
                         l->local_size, out->local_size, l->size, out->size);
    if (value_of(l->local_rank)) RETURN_IF_ERROR(read_number(ctx, l->local_rank, 0, &out->local_rank));
    if (out->local_rank > out->rank)
        return snug_fail(ctx, SNUG_E_USAGE,
                         "the environment variable %s is %d, and %s is %d: a host's ranks are numbered in the order of "
                         "the run's",
                         l->local_rank, out->local_rank, l->rank, out->rank);
    if (out->local_size && out->local_rank >= out->local_size)
        return fail_order(ctx, l->local_rank, out->local_rank, l->local_size, out->local_size);
    return SNUG_OK;
}

/* Scripts set torchrun's variables from those of mpirun: they must then agree. */
static snug_status check_agreement(snug_context *ctx, const struct launcher *chosen, const struct snug_ranks *ranks,
                                   const struct launcher *other) {
    struct snug_ranks second = {0};
    RETURN_IF_ERROR(read_launcher(ctx, other, &second));
    if (second.rank == ranks->rank && second.size == ranks->size) return SNUG_OK;
    return snug_fail(ctx, SNUG_E_USAGE,
                     "the environment variables contradict each other: %s is %d and %s is %d, but %s is %d and %s is "
                     "%d; unset those of %s or those of %s",
                     chosen->rank, ranks->rank, chosen->size, ranks->size, other->rank, second.rank, other->size,
                     second.size, chosen->name, other->name);
}

static bool are_equal(const char *name, const char *other) {
    const char *a = value_of(name), *b = value_of(other);
    return a && b && strcmp(a, b) == 0;
}

/* srun --mpi=pmi2 sets PMI_RANK and PMI_SIZE, too. In a step in which mpiexec runs, Slurm's are those of mpiexec. */
static bool are_of_srun(const struct launcher *pmi, const struct launcher *slurm) {
    return is_there(slurm) && are_equal(pmi->rank, slurm->rank) && are_equal(pmi->size, slurm->size);
}

snug_status snug_ranks_find(snug_context *ctx, struct snug_ranks *out) {
    const struct launcher *chosen = NULL;
    *out = (struct snug_ranks){.size = 1, .local_size = 1};
    gethostname(out->host, sizeof out->host); /* which has room for any name */
    for (int i = 0; i < LAUNCHERS; i++) {
        if (!is_there(&launchers[i]) || (chosen && i == SLURM)) continue;
        if (i == PMI && are_of_srun(&launchers[PMI], &launchers[SLURM])) continue;
        if (!chosen) {
            chosen = &launchers[i];
            RETURN_IF_ERROR(read_launcher(ctx, chosen, out));
        } else {
            RETURN_IF_ERROR(check_agreement(ctx, chosen, out, &launchers[i]));
        }
    }
    return SNUG_OK;
}

/* ---- other processes --------------------------------------------------------------------------------------------- */

static const char *value_in(const char *environment, size_t size, const char *name) {
    const size_t length = strlen(name);
    for (const char *at = environment; at < environment + size; at += strlen(at) + 1)
        if (strncmp(at, name, length) == 0 && at[length] == '=') return at + length + 1;
    return NULL;
}

/* -1: it is not set, or no number of a rank. */
static int number_in(const char *environment, size_t size, const char *name) {
    enum { DIGITS = 7 };
    const char *text = value_in(environment, size, name);
    const size_t digits = text ? strspn(text, "0123456789") : 0;
    return digits > 0 && digits <= DIGITS && !text[digits] ? (int)strtol(text, NULL, 10) : -1;
}

bool snug_ranks_read(const char *environment, size_t size, int *rank, int *count) {
    for (int i = 0; i < LAUNCHERS; i++) {
        const struct launcher *l = &launchers[i];
        if (l->mark && !value_in(environment, size, l->mark)) continue;
        *rank = number_in(environment, size, l->rank);
        *count = number_in(environment, size, l->size);
        if (*rank >= 0 && *rank < *count) return *count > 1;
    }
    return false;
}
