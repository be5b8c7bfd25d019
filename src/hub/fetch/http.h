/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several HTTP requests at once, with libcurl's multi interface in the calling thread. A request whose connection is
 * cut, that is too slow, or that is answered with 408, 429, 500, 502, 503 or 504 is repeated, after the time that
 * Retry-After asks for, from the first byte that is still missing. Redirects are followed here, so that the token is
 * sent to the hub's own origin (scheme, host and port) alone, and never from https to http. Origins are compared in
 * lower case.
 */
#ifndef SNUG_HUB_FETCH_HTTP_H
#define SNUG_HUB_FETCH_HTTP_H

#include "hub/fetch/curl.h"

/* What the last answer of a request said. */
struct snug_answer {
    long status;             /* 0: no answer yet */
    char etag[256];          /* ETag, "" if none; without W/ and quotes */
    char error_code[64];     /* X-Error-Code: "GatedRepo", "RepoNotFound", "RevisionNotFound", "EntryNotFound" */
    char error_message[256]; /* X-Error-Message */
    int64_t length;          /* Content-Length; -1 if absent */
    int64_t range_first;     /* Content-Range; -1 if absent */
};

/* What a hub says about a file, wherever its content is: on a redirect to another server, but also on one to itself,
 * whose answer then says nothing of it. The last of each that any answer since the request's own URL had. */
struct snug_linked {
    char etag[256];  /* X-Linked-Etag, as in snug_answer */
    char commit[64]; /* X-Repo-Commit, "" if none */
    int64_t length;  /* X-Linked-Size; -1 if absent */
};

struct snug_request;

struct snug_request_calls {
    /* Before each attempt: sets request->from. SNUG_END: not yet, call again. May set request->done: nothing is to be
     * requested. NULL: everything is wanted. */
    snug_status (*start)(struct snug_request *request);
    /* A 2xx answer begins, or 416 answers a request for a range; if it has the whole file instead, sets request->from
     * to 0. SNUG_END: it is of no use, repeat. May be NULL. */
    snug_status (*begin)(struct snug_request *request);
    snug_status (*receive)(struct snug_request *request, const void *data, size_t size);
    /* All of the answer is there. SNUG_END: it is incomplete or damaged, repeat. */
    snug_status (*finish)(struct snug_request *request);
    /* The failure for an answer that is neither 2xx nor worth a repetition. */
    snug_status (*refuse)(struct snug_request *request);
};

/* One request. The caller zeroes it and sets the first members. */
struct snug_request {
    const char *url;
    const char *name; /* for messages */
    bool head;        /* only the headers; a redirect to another origin is not followed, it is the answer */
    void *user;
    const struct snug_request_calls *calls;
    double seconds_most; /* of a file, with all repetitions: a server that sends on and on must end, too */

    int64_t from;     /* offset of the answer's first byte */
    int64_t received; /* bytes of the answer */
    struct snug_answer answer;
    struct snug_linked linked;
    bool done;

    /* http.c's own */
    CURL *easy;
    struct curl_slist *headers;
    char *location; /* of a redirect; NULL: url */
    int redirects, tries;
    int64_t most;         /* the furthest byte that any attempt has reached */
    double due;           /* time of the next attempt */
    double began;         /* time of the first attempt; 0: none yet */
    double heard;         /* time of the last byte */
    double window_end;    /* of the running measurement of its rate */
    int64_t window_first; /* bytes of the answer when it began */
    size_t header_bytes, dropped_bytes;
    bool begun, enough;
    snug_status status; /* of the calls */
    struct snug_http *http;
};

/* Bytes per second, far below any line: below it a server only keeps the connection open. */
enum { SNUG_HTTP_SLOWEST = 128 };

struct snug_http_options {
    const char *endpoint;    /* where the token may be sent */
    const char *token;       /* NULL: none */
    long connect_seconds;    /* longest wait for a connection */
    long idle_seconds;       /* longest time without a byte */
    double slow_seconds;     /* time over which the rate of a file is measured; at least idle_seconds */
    long answer_seconds;     /* longest time of a request that is no file */
    const char *authorities; /* a file of certificates that are trusted; NULL: libcurl's */
    double retry_seconds;    /* before the second attempt; doubled each time, at most eight times as long */
    void (*on_progress)(void *user);
    void *user;
};

struct snug_http {
    snug_context *ctx;
    const struct snug_curl *curl;
    CURLM *multi;
    struct snug_http_options options;
    char *authorization; /* header line with the token; NULL: none */
    char *origin;        /* of the endpoint: "https://host:443" */
    bool reached;        /* some server has answered */
};

/* The strings of options must outlive http. */
snug_status snug_http_open(snug_context *ctx, const struct snug_http_options *options, struct snug_http *out);
void snug_http_close(struct snug_http *http);
/* Runs all requests, several at a time, until they are done or one fails. SNUG_E_INTERRUPTED if the context's stop
 * function says so. */
snug_status snug_http_run(struct snug_http *http, struct snug_request *requests, size_t count);
/* text for a URL, with all but letters, digits and -._~ escaped. Freed by the caller. */
snug_status snug_http_escape(struct snug_http *http, const char *text, char **out);

#endif
