/* SPDX-License-Identifier: Apache-2.0 */
#include "dist/rendezvous.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PORTS = 65535 };

static const char *value_of(const char *name) {
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

/* FNV-1a. */
static uint64_t hash(uint64_t so_far, const char *text) {
    for (; text && *text; text++) so_far = (so_far ^ (uint8_t)*text) * UINT64_C(0x100000001b3);
    return (so_far ^ 0xff) * UINT64_C(0x100000001b3);
}

/* torchrun's agent listens on MASTER_PORT itself. */
static bool is_taken(void) {
    const char *value = value_of("TORCHELASTIC_USE_AGENT_STORE");
    return value && strcmp(value, "True") == 0;
}

static snug_status read_master(snug_context *ctx, const char *host, const char *text, struct snug_rendezvous *out) {
    char *end;
    const long port = strtol(text, &end, 10);
    if (*end || port < 1 || port > PORTS - SNUG_RENDEZVOUS_PORTS)
        return snug_fail(ctx, SNUG_E_USAGE,
                         "the environment variable MASTER_PORT is %s: it must be a port from 1 to %d, which is free on "
                         "the host of rank 0",
                         text, PORTS - SNUG_RENDEZVOUS_PORTS);
    if (strlen(host) >= sizeof out->host)
        return snug_fail(ctx, SNUG_E_USAGE, "the environment variable MASTER_ADDR is too long for a host: %.64s…",
                         host);
    snprintf(out->host, sizeof out->host, "%s", host);
    out->first = (int)port + is_taken();
    return SNUG_OK;
}

/* The first host of "node1,node2", "node[03-07,9],login" or "rack[1-2]n[5-8]"; false: its name is too long. */
static bool first_of(const char *list, char *host, size_t size) {
    size_t used = 0;
    while (*list && *list != ',') {
        const bool many = *list == '[';
        const size_t length = many ? strspn(++list, "0123456789") : 1;
        if (used + length >= size) return false;
        memcpy(host + used, list, length);
        used += length;
        list += length;
        if (many) list += strcspn(list, "]");
        list += many && *list == ']';
    }
    host[used] = '\0';
    return true;
}

static snug_status read_step(snug_context *ctx, struct snug_rendezvous *out) {
    enum { FIRST = 20000, SPREAD = 12000 };
    const uint64_t number = hash(hash(0, value_of("SLURM_JOB_ID")), value_of("SLURM_STEP_ID"));
    const char *list = value_of("SLURM_STEP_NODELIST");
    if (!first_of(list, out->host, sizeof out->host))
        return snug_fail(ctx, SNUG_E_USAGE,
                         "the environment variable SLURM_STEP_NODELIST begins with a name that is too long for a host: "
                         "%.64s…; set MASTER_ADDR and MASTER_PORT",
                         list);
    out->first = FIRST + (int)(number % SPREAD);
    return SNUG_OK;
}

snug_status snug_rendezvous_find(snug_context *ctx, const struct snug_ranks *ranks, struct snug_rendezvous *out) {
    static const char *const names[] = {"MASTER_ADDR",          "MASTER_PORT",  "TORCHELASTIC_RUN_ID",
                                        SNUG_RENDEZVOUS_SECRET, "SLURM_JOB_ID", "SLURM_STEP_ID"};
    const char *host = value_of("MASTER_ADDR"), *port = value_of("MASTER_PORT");
    *out = (struct snug_rendezvous){.count = SNUG_RENDEZVOUS_PORTS};
    if (host && port) RETURN_IF_ERROR(read_master(ctx, host, port, out));
    if (!*out->host && strcmp(ranks->launcher, "Slurm") == 0) RETURN_IF_ERROR(read_step(ctx, out));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) out->key = hash(out->key, value_of(names[i]));
    return SNUG_OK;
}
