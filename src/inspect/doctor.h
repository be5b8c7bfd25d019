/* SPDX-License-Identifier: Apache-2.0 */
/* What this machine has, what is missing, and what snug will use: collected in doctor.c, printed by report. */
#ifndef SNUG_INSPECT_DOCTOR_H
#define SNUG_INSPECT_DOCTOR_H

#include <sys/utsname.h>

#include "backend/backend.h"
#include "backend/gpu.h"
#include "dist/process_group.h"
#include "train/cgroup.h"

enum { SNUG_DOCTOR_NOTES = 12 };

/* What a rank would use. */
struct snug_doctor_rank {
    char host[SNUG_HOST_NAME], used[320], refused[320]; /* as in snug_doctor */
};

struct snug_doctor {
    snug_context *ctx;
    struct utsname system;
    char cpu[96], isa[16], features[160], matmuls[96], waiting[96];
    int cores, threads;
    int64_t memory, available; /* the limits of the control group included */
    struct snug_cgroup cgroup;
    struct snug_gpus gpus;
    const struct snug_backend *cuda; /* NULL if no GPU can be used for training */
    snug_status plugin;              /* the result of opening the plug-in */
    char plugin_text[512];
    char cublaslt[96]; /* version and file, "" if it was not loaded */
    char nccl[640];    /* version, or why several GPUs cannot be used together; "" with fewer than two */
    char mpi[640];     /* whether several ranks on CPUs can be started, or why not */
    char group[256];   /* how the ranks are connected; "": one rank */
    struct snug_doctor_rank *ranks;
    int rank_count;
    char *cache; /* folder, NULL if there is none */
    char cache_problem[256];
    char used[640];    /* device and why */
    char refused[640]; /* why a training with these arguments would be refused, or "" */
    char missing[SNUG_DOCTOR_NOTES][384];
    int missing_count;
};

#endif
