/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/fetch/curl.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER; /* curl_global_init() may not be safe from threads */
static struct snug_curl opened;
static bool is_open;

static void *open_library(void) {
    /* Debian has a second name for the build with GnuTLS. */
    static const char *const names[] = {"libcurl.so.4", "libcurl-gnutls.so.4"};
    const char *given = getenv("SNUG_LIBCURL");
    void *library = NULL;
    if (given) return dlopen(given, RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; !library && i < sizeof names / sizeof *names; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    return library;
}

/* The name of a missing call; NULL if all were found. */
static const char *find_calls(void *library, struct snug_curl *curl) {
    const struct {
        const char *name;
        void *call; /* the pointer that is set */
    } calls[] = {
#define CALL(call) {"curl_" #call, &curl->call},
        SNUG_CURL_CALLS(CALL)
#undef CALL
    };
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        void *found = dlsym(library, calls[i].name);
        if (!found) return calls[i].name;
        memcpy(calls[i].call, &found, sizeof found); /* ISO C has no cast from data to function pointers */
    }
    return NULL;
}

static snug_status open_once(snug_context *ctx) {
    struct snug_curl curl;
    if (is_open) return SNUG_OK;
    void *library = open_library();
    if (!library)
        return snug_fail(ctx, SNUG_E_UNSUPPORTED,
                         "downloading needs libcurl, which cannot be opened (%s): install it (Debian, Ubuntu: "
                         "apt-get install libcurl4), or fetch the model by other means",
                         dlerror());
    const char *missing = find_calls(library, &curl);
    if (missing) {
        dlclose(library);
        return snug_fail(ctx, SNUG_E_UNSUPPORTED,
                         "the installed libcurl is too old, it has no %s(): install 7.68 or later", missing);
    }
    if (curl.global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        return snug_fail(ctx, SNUG_E_MEMORY, "libcurl cannot be initialised");
    opened = curl;
    is_open = true;
    return SNUG_OK;
}

snug_status snug_curl_open(snug_context *ctx, const struct snug_curl **out) {
    pthread_mutex_lock(&opening);
    const snug_status status = open_once(ctx);
    pthread_mutex_unlock(&opening);
    *out = &opened;
    return status;
}
