/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records each kernel, copy and memset of a CUDA program: a library for CUDA_INJECTION64_PATH, which the driver loads
 * before the program's first CUDA call, on CUPTI's activity records. tools/cuda-check timeline compiles and uses it.
 *
 * SNUG_TIMELINE=PREFIX: a process writes PREFIX.PID, a line for each record, separated by tabs: K (kernel), C (copy),
 * P (copy between GPUs) or S (memset); start and end in nanoseconds, by a clock that all processes of a host share;
 * stream; thread blocks of a kernel, bytes of the others; a kernel's mangled name, or "-".
 */
#include <cupti.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { BUFFER = 16 << 20 };

static FILE *out;

/* False, with a message: the process goes on, and its results are not a timeline. */
static int check(CUptiResult result, const char *what) {
    const char *text = "unknown error";
    if (result == CUPTI_SUCCESS) return 1;
    cuptiGetResultString(result, &text);
    fprintf(stderr, "timeline: %s: %s\n", what, text);
    return 0;
}

static void write_record(char kind, uint64_t start, uint64_t end, uint32_t stream, uint64_t size, const char *name) {
    fprintf(out, "%c\t%" PRIu64 "\t%" PRIu64 "\t%u\t%" PRIu64 "\t%s\n", kind, start, end, stream, size, name);
}

static void write_activity(const CUpti_Activity *record) {
    if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
        const CUpti_ActivityKernel9 *k = (const void *)record;
        const uint64_t blocks = (uint64_t)k->gridX * (uint64_t)k->gridY * (uint64_t)k->gridZ;
        write_record('K', k->start, k->end, k->streamId, blocks, k->name);
    } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
        const CUpti_ActivityMemcpy6 *c = (const void *)record;
        write_record('C', c->start, c->end, c->streamId, c->bytes, "-");
    } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMCPY2) {
        const CUpti_ActivityMemcpyPtoP4 *c = (const void *)record;
        write_record('P', c->start, c->end, c->streamId, c->bytes, "-");
    } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMSET) {
        const CUpti_ActivityMemset4 *s = (const void *)record;
        write_record('S', s->start, s->end, s->streamId, s->bytes, "-");
    }
}

static void CUPTIAPI give_buffer(uint8_t **buffer, size_t *size, size_t *most_records) {
    *buffer = aligned_alloc(8, BUFFER);
    *size = *buffer ? BUFFER : 0;
    *most_records = 0; /* as many as there is room for */
}

static void CUPTIAPI take_buffer(CUcontext context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid) {
    CUpti_Activity *record = NULL;
    size_t dropped = 0;
    (void)size;
    while (cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) write_activity(record);
    check(cuptiActivityGetNumDroppedRecords(context, stream, &dropped), "counting lost records");
    if (dropped) fprintf(stderr, "timeline: %zu records are lost\n", dropped);
    free(buffer);
}

static void finish(void) {
    check(cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED), "writing the last records");
    if (ferror(out) | fclose(out)) fputs("timeline: the file is incomplete\n", stderr);
}

/* The function that the driver calls; 1: the library works. */
int InitializeInjection(void);
int InitializeInjection(void) {
    const CUpti_ActivityKind kinds[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
                                        CUPTI_ACTIVITY_KIND_MEMCPY2, CUPTI_ACTIVITY_KIND_MEMSET};
    const char *prefix = getenv("SNUG_TIMELINE");
    char path[4096];
    snprintf(path, sizeof path, "%s.%d", prefix ? prefix : "timeline", (int)getpid());
    out = fopen(path, "w");
    if (!out) {
        perror(path);
        return 0;
    }
    int works = check(cuptiActivityRegisterCallbacks(give_buffer, take_buffer), "registering buffers");
    for (size_t i = 0; works && i < sizeof kinds / sizeof *kinds; i++)
        works = check(cuptiActivityEnable(kinds[i]), "enabling records");
    if (works) atexit(finish);
    return works;
}
