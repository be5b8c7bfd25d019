/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Seconds to load a model's weights, and to read the bytes of its files with as many threads into memory that is there:
 *   bench_loading ROUNDS --model_name_or_path DIR --validation_file FILE … (arguments of snug eval)
 * In the page cache from the first round on. Peak memory is to be compared with the arena.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "train/memory.h"
#include "train/session.h"
#include "train/threads.h"

enum { PIECE = 1 << 20 };

static void check(snug_context *ctx, snug_status status) {
    if (status == SNUG_OK) return;
    fprintf(stderr, "bench_loading: %s\n", snug_error_message(ctx));
    exit(1);
}

/* Reads each file of weights whole, in pieces; *bytes: of all. */
static double read_files(snug_context *ctx, const struct snug_folder *folder, int threads, char *room, int64_t *bytes) {
    const double begin = snug_seconds();
    DIR *entries = snug_folder_entries(folder);
    *bytes = 0;
    for (struct dirent *entry; entries && (entry = readdir(entries));) {
        struct stat info;
        int fd;
        if (!strstr(entry->d_name, ".safetensors") || strstr(entry->d_name, ".json")) continue;
        check(ctx, snug_file_open(ctx, folder, entry->d_name, &fd));
        fstat(fd, &info);
        *bytes += info.st_size;
#pragma omp parallel for num_threads(threads) schedule(static)
        for (int64_t at = 0; at < info.st_size; at += PIECE)
            snug_read_at(fd, room + at, (size_t)(info.st_size - at < PIECE ? info.st_size - at : PIECE), (uint64_t)at);
        close(fd);
    }
    if (entries) closedir(entries);
    return snug_seconds() - begin;
}

int main(int argc, char **argv) {
    snug_context *ctx;
    snug_args *args;
    struct snug_session *session;
    struct snug_folder folder;
    const int rounds = argc > 1 ? atoi(argv[1]) : 0;
    if (rounds < 1) {
        fputs("usage: bench_loading ROUNDS --model_name_or_path DIR --validation_file FILE …\n", stderr);
        return 2;
    }
    if (snug_context_create(&ctx) != SNUG_OK) return 1;
    check(ctx, snug_args_create(ctx, &args));
    check(ctx, snug_args_parse(args, argc - 1, argv + 1));
    check(ctx, snug_session_open(args, SNUG_COMMAND_EVAL, NULL, &session));
    const int threads = snug_args_threads(args);
    printf("arena %.2f GB, peak resident %.2f GB\n", (double)session->job.plan.layout.total / 1e9,
           (double)snug_peak_resident_bytes() / 1e9);
    check(ctx, snug_folder_open(ctx, NULL, session->job.setup.model.path, &folder));
    int64_t bytes, most = (int64_t)1 << 33;
    char *room = calloc((size_t)most, 1);
    if (!room) return 1;
    for (int i = 0; i < rounds; i++) {
        const double begin = snug_seconds();
        check(ctx, snug_session_load_weights(session, &folder));
        const double load = snug_seconds() - begin, read = read_files(ctx, &folder, threads, room, &bytes);
        printf("%.2f GB: loaded in %.3f s (%.2f GB/s), files read in %.3f s (%.2f GB/s), ratio %.2f\n",
               (double)bytes / 1e9, load, (double)bytes / 1e9 / load, read, (double)bytes / 1e9 / read, read / load);
    }
    free(room);
    snug_folder_close(&folder);
    snug_session_close(session);
    snug_args_destroy(args);
    snug_context_destroy(ctx);
    return 0;
}
