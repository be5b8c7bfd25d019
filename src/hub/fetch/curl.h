/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libcurl, opened at run time: linked, it and the 25 libraries that it needs would take 5 ms and 4 MB at every start of
 * a program that rarely downloads anything.
 */
#ifndef SNUG_HUB_FETCH_CURL_H
#define SNUG_HUB_FETCH_CURL_H

#include <curl/curl.h>

#include "core/context.h"

/* The calls that snug uses, with their types in curl.h. */
#define SNUG_CURL_CALLS(X)                                                                                             \
    X(global_init)                                                                                                     \
    X(free)                                                                                                            \
    X(easy_init)                                                                                                       \
    X(easy_cleanup)                                                                                                    \
    X(easy_setopt)                                                                                                     \
    X(easy_getinfo)                                                                                                    \
    X(easy_escape)                                                                                                     \
    X(easy_strerror)                                                                                                   \
    X(multi_init)                                                                                                      \
    X(multi_cleanup)                                                                                                   \
    X(multi_add_handle)                                                                                                \
    X(multi_remove_handle)                                                                                             \
    X(multi_perform)                                                                                                   \
    X(multi_poll)                                                                                                      \
    X(multi_info_read)                                                                                                 \
    X(multi_strerror)                                                                                                  \
    X(slist_append)                                                                                                    \
    X(slist_free_all)                                                                                                  \
    X(url)                                                                                                             \
    X(url_cleanup)                                                                                                     \
    X(url_set)                                                                                                         \
    X(url_get)

struct snug_curl {
#define SNUG_CURL_MEMBER(name) __typeof__(&curl_##name) name; /* NOLINT(bugprone-macro-parentheses): a declaration */
    SNUG_CURL_CALLS(SNUG_CURL_MEMBER)
#undef SNUG_CURL_MEMBER
};

/* Opens and initialises libcurl, once in a process: neither it nor the libraries that it needs can be unloaded safely.
 * SNUG_E_UNSUPPORTED says what to install. SNUG_LIBCURL names another file, for tests. */
snug_status snug_curl_open(snug_context *ctx, const struct snug_curl **out);

#endif
