/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/fetch/http.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum {
    PARALLEL = 8, /* requests at once, as huggingface_hub's snapshot_download */
    REDIRECTS_MOST = 10,
    TRIES_MOST = 5,  /* repetitions without progress */
    PROGRESS = 4096, /* new bytes; fewer keep a connection busy that is cut again and again */
    WAIT_MOST = 300, /* seconds of Retry-After that are waited for */
    HEADER_BYTES_MOST = 1 << 17,
    DROPPED_BYTES_MOST = 1 << 16, /* of an answer whose content is not used */
    BUFFER = 1 << 18,
};

static const double pause_seconds = 0.05; /* seconds after which a stop is noticed, and a lock is tried again */

/* ---- the answer's headers ------------------------------------------------------------------------------------- */

static bool is_white(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

/* The value of a header line if it has this name: *value points into it. */
static bool header_is(const char *line, size_t length, const char *name, const char **value, size_t *size) {
    const size_t own = strlen(name);
    if (length <= own || strncasecmp(line, name, own) != 0 || line[own] != ':') return false;
    const char *from = line + own + 1, *end = line + length;
    while (from < end && is_white(*from)) from++;
    while (end > from && is_white(end[-1])) end--;
    *value = from;
    *size = (size_t)(end - from);
    return true;
}

static void copy_text(char *to, size_t capacity, const char *value, size_t size) {
    snprintf(to, capacity, "%.*s", (int)(size < capacity ? size : capacity - 1), value);
}

/* Without W/ and quotes. */
static void copy_etag(char *to, size_t capacity, const char *value, size_t size) {
    if (size >= 2 && memcmp(value, "W/", 2) == 0) value += 2, size -= 2;
    if (size >= 2 && *value == '"' && value[size - 1] == '"') value++, size -= 2;
    copy_text(to, capacity, value, size);
}

/* A decimal number below 2^62; -1 if it is none. */
static int64_t number_of(const char *value, size_t size) {
    char text[32];
    copy_text(text, sizeof text, value, size);
    const size_t digits = strspn(text, "0123456789");
    return digits > 0 && digits <= 18 && digits == size ? strtoll(text, NULL, 10) : -1;
}

static void read_header(struct snug_request *request, const char *line, size_t length) {
    struct snug_answer *answer = &request->answer;
    struct snug_linked *linked = &request->linked;
    const char *value;
    size_t size;
    if (header_is(line, length, "ETag", &value, &size)) {
        copy_etag(answer->etag, sizeof answer->etag, value, size);
    } else if (header_is(line, length, "X-Linked-Etag", &value, &size)) {
        copy_etag(linked->etag, sizeof linked->etag, value, size);
    } else if (header_is(line, length, "X-Linked-Size", &value, &size)) {
        linked->length = number_of(value, size);
    } else if (header_is(line, length, "X-Repo-Commit", &value, &size)) {
        copy_text(linked->commit, sizeof linked->commit, value, size);
    } else if (header_is(line, length, "Content-Length", &value, &size)) {
        answer->length = number_of(value, size);
    } else if (header_is(line, length, "X-Error-Code", &value, &size)) {
        copy_text(answer->error_code, sizeof answer->error_code, value, size);
    } else if (header_is(line, length, "X-Error-Message", &value, &size)) {
        copy_text(answer->error_message, sizeof answer->error_message, value, size);
    } else if (header_is(line, length, "Content-Range", &value, &size)) {
        const size_t unit = strlen("bytes "); /* "bytes 100-199/200" */
        if (size > unit && strncasecmp(value, "bytes ", unit) == 0)
            answer->range_first = number_of(value + unit, strcspn(value + unit, "-"));
    }
}

/* libcurl ends each line, so that strcspn() above stops within it. */
static size_t on_header(char *line, size_t one, size_t length, void *user) {
    struct snug_request *request = user;
    (void)one;
    request->heard = snug_seconds();
    request->header_bytes += length;
    if (request->header_bytes > HEADER_BYTES_MOST) {
        request->status = snug_fail(request->http->ctx, SNUG_E_INPUT, "%s: the answer has more than 128 KiB of headers",
                                    request->url);
        return 0;
    }
    if (length > 5 && strncasecmp(line, "HTTP/", 5) == 0)
        request->answer = (struct snug_answer){.length = -1, .range_first = -1};
    else
        read_header(request, line, length);
    return length;
}

/* ---- the answer's content ------------------------------------------------------------------------------------- */

static bool is_good(const struct snug_request *request) { return request->answer.status / 100 == 2; }

static snug_status begin(struct snug_request *request) {
    if (request->begun) return SNUG_OK;
    request->begun = true;
    return request->calls->begin ? request->calls->begin(request) : SNUG_OK;
}

static size_t on_data(char *data, size_t one, size_t size, void *user) {
    struct snug_request *request = user;
    (void)one;
    request->heard = snug_seconds();
    request->http->curl->easy_getinfo(request->easy, CURLINFO_RESPONSE_CODE, &request->answer.status);
    if (!is_good(request)) {
        request->dropped_bytes += size;
        request->enough = request->dropped_bytes > DROPPED_BYTES_MOST;
        return request->enough ? 0 : size;
    }
    request->status = begin(request);
    if (request->status == SNUG_OK) request->status = request->calls->receive(request, data, size);
    if (request->status != SNUG_OK) return 0;
    request->received += (int64_t)size;
    return size;
}

/* ---- addresses ------------------------------------------------------------------------------------------------ */

/* "https://host:443" of a URL, in lower case; NULL if it is not http or https. */
static snug_status origin_of(struct snug_http *http, const char *url, char **origin) {
    char *parts[3] = {NULL};
    static const CURLUPart wanted[] = {CURLUPART_SCHEME, CURLUPART_HOST, CURLUPART_PORT};
    CURLU *parsed = http->curl->url();
    *origin = NULL;
    if (!parsed) return snug_fail(http->ctx, SNUG_E_MEMORY, "out of memory while reading the URL %s", url);
    bool good = http->curl->url_set(parsed, CURLUPART_URL, url, 0) == CURLUE_OK;
    for (int i = 0; i < 3 && good; i++)
        good = http->curl->url_get(parsed, wanted[i], &parts[i], CURLU_DEFAULT_PORT) == CURLUE_OK;
    good = good && (strcasecmp(parts[0], "http") == 0 || strcasecmp(parts[0], "https") == 0);
    snug_status status = SNUG_OK;
    if (good) status = snug_format(http->ctx, origin, "%s://%s:%s", parts[0], parts[1], parts[2]);
    for (char *at = *origin; at && *at; at++) *at = (char)tolower((unsigned char)*at);
    for (int i = 0; i < 3; i++) http->curl->free(parts[i]);
    http->curl->url_cleanup(parsed);
    return status;
}

static bool is_encrypted(const char *origin) { return origin && strncmp(origin, "https:", 6) == 0; }

static const char *url_of(const struct snug_request *request) {
    return request->location ? request->location : request->url;
}

/* Whether a redirect from one origin to another, NULL if it has none, is followed. */
static snug_status check_redirect(struct snug_http *http, const struct snug_request *request, const char *from,
                                  const char *to, const char *location) {
    if (!to)
        return snug_fail(http->ctx, SNUG_E_INPUT, "%s redirects to %s, which is neither http nor https", request->url,
                         location);
    if (is_encrypted(from) && !is_encrypted(to))
        return snug_fail(http->ctx, SNUG_E_INPUT, "%s redirects from https to %s, which is not encrypted", request->url,
                         to);
    return SNUG_OK;
}

/* Follows a redirect. *stays: the request continues at request->location. */
static snug_status follow(struct snug_http *http, struct snug_request *request, const char *location, bool *stays) {
    char *from, *to = NULL, *copy;
    *stays = false;
    if (++request->redirects > REDIRECTS_MOST)
        return snug_fail(http->ctx, SNUG_E_IO, "%s: more than %d redirects", request->url, REDIRECTS_MOST);
    RETURN_IF_ERROR(origin_of(http, url_of(request), &from));
    snug_status status = origin_of(http, location, &to);
    if (status == SNUG_OK) status = check_redirect(http, request, from, to, location);
    if (status == SNUG_OK) *stays = !request->head || strcmp(to, http->origin) == 0;
    free(from);
    free(to);
    if (status != SNUG_OK || !*stays) return status;
    RETURN_IF_ERROR(snug_strdup(http->ctx, location, &copy));
    free(request->location);
    request->location = copy;
    request->due = 0;
    return SNUG_OK;
}

/* ---- attempts ------------------------------------------------------------------------------------------------- */

static void drop_easy(struct snug_http *http, struct snug_request *request) {
    if (!request->easy) return;
    http->curl->multi_remove_handle(http->multi, request->easy);
    http->curl->easy_cleanup(request->easy);
    http->curl->slist_free_all(request->headers);
    request->easy = NULL;
    request->headers = NULL;
}

static snug_status add_header(struct snug_http *http, struct snug_request *request, const char *line) {
    struct curl_slist *grown = http->curl->slist_append(request->headers, line);
    if (!grown) return snug_fail(http->ctx, SNUG_E_MEMORY, "out of memory while requesting %s", request->url);
    request->headers = grown;
    return SNUG_OK;
}

static void set_options(struct snug_http *http, struct snug_request *request) {
    const struct snug_curl *curl = http->curl;
    CURL *easy = request->easy;
    curl->easy_setopt(easy, CURLOPT_PRIVATE, request);
    curl->easy_setopt(easy, CURLOPT_URL, url_of(request));
    curl->easy_setopt(easy, CURLOPT_HTTPHEADER, request->headers);
    curl->easy_setopt(easy, CURLOPT_USERAGENT, "snug/" SNUG_VERSION);
    curl->easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl->easy_setopt(easy, CURLOPT_NOBODY, (long)request->head);
    curl->easy_setopt(easy, CURLOPT_BUFFERSIZE, (long)BUFFER);
    curl->easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header);
    curl->easy_setopt(easy, CURLOPT_HEADERDATA, request);
    curl->easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_data);
    curl->easy_setopt(easy, CURLOPT_WRITEDATA, request);
    curl->easy_setopt(easy, CURLOPT_CONNECTTIMEOUT, http->options.connect_seconds);
    if (http->options.authorities) curl->easy_setopt(easy, CURLOPT_CAINFO, http->options.authorities);
    /* Only a file has a start, and may take longer: see repeat_slow(). */
    if (!request->calls->start) curl->easy_setopt(easy, CURLOPT_TIMEOUT, http->options.answer_seconds);
    if (request->from > 0) { /* not CURLOPT_RESUME_FROM: libcurl would fail where the server ignores the range */
        char range[32];
        snprintf(range, sizeof range, "%lld-", (long long)request->from);
        curl->easy_setopt(easy, CURLOPT_RANGE, range);
    }
}

static void begin_window(struct snug_request *request) {
    const struct snug_http_options *o = &request->http->options;
    const double seconds = o->slow_seconds > (double)o->idle_seconds ? o->slow_seconds : (double)o->idle_seconds;
    request->window_end = snug_seconds() + seconds;
    request->window_first = request->received;
}

/* Starts an attempt at url_of(request). */
static snug_status attempt(struct snug_http *http, struct snug_request *request) {
    char *origin;
    RETURN_IF_ERROR(origin_of(http, url_of(request), &origin));
    const bool own = origin && strcmp(origin, http->origin) == 0;
    free(origin);
    request->received = 0;
    request->header_bytes = request->dropped_bytes = 0;
    request->begun = request->enough = false;
    request->status = SNUG_OK;
    request->heard = snug_seconds();
    if (request->began == 0) request->began = request->heard;
    begin_window(request);
    request->answer = (struct snug_answer){.length = -1, .range_first = -1};
    if (!request->location) request->linked = (struct snug_linked){.length = -1};
    request->easy = http->curl->easy_init();
    if (!request->easy) return snug_fail(http->ctx, SNUG_E_MEMORY, "out of memory while requesting %s", request->url);
    RETURN_IF_ERROR(add_header(http, request, "Accept-Encoding: identity"));
    if (own && http->authorization) RETURN_IF_ERROR(add_header(http, request, http->authorization));
    set_options(http, request);
    const CURLMcode added = http->curl->multi_add_handle(http->multi, request->easy);
    if (added == CURLM_OK) return SNUG_OK;
    return snug_fail(http->ctx, SNUG_E_MEMORY, "cannot request %s: %s", request->url,
                     http->curl->multi_strerror(added));
}

/* Starts a request that is due. */
static snug_status start(struct snug_http *http, struct snug_request *request) {
    snug_status status = SNUG_OK;
    request->http = http;
    if (request->calls->start) status = request->calls->start(request);
    if (status == SNUG_OK && !request->done) return attempt(http, request);
    if (status != SNUG_END) return status;
    request->due = snug_seconds() + pause_seconds;
    return SNUG_OK;
}

/* Repeats a request after a while; a failure if that is useless. asked: seconds of Retry-After. */
static snug_status repeat(struct snug_http *http, struct snug_request *request, const char *reason, double asked) {
    const int64_t reached = request->begun ? request->from + request->received : 0;
    if (reached >= request->most + PROGRESS) {
        request->most = reached;
        request->tries = 0;
    }
    if (asked > WAIT_MOST)
        return snug_fail(http->ctx, SNUG_E_IO, "%s: %s, and asks to wait %.0f seconds: run the command again then",
                         request->name, reason, asked);
    if (++request->tries > TRIES_MOST)
        return snug_fail(http->ctx, SNUG_E_IO,
                         "%s: %s, also after %d repetitions: run the command again, it continues where this one ended",
                         request->name, reason, TRIES_MOST);
    const int doublings = request->tries < 4 ? request->tries - 1 : 3;
    double wait = http->options.retry_seconds * (1 << doublings);
    if (asked > wait) wait = asked;
    free(request->location); /* the address that a redirect named may be valid for a while only */
    request->location = NULL;
    request->redirects = 0;
    request->due = snug_seconds() + wait;
    snug_log(http->ctx, SNUG_LOG_WARNING, "%s: %s; trying again in %.0f s (%d of %d)", request->name, reason, wait,
             request->tries, TRIES_MOST);
    return SNUG_OK;
}

static bool is_transient_status(long status) {
    static const long transient[] = {408, 429, 500, 502, 503, 504};
    for (size_t i = 0; i < sizeof transient / sizeof *transient; i++)
        if (status == transient[i]) return true;
    return false;
}

static const CURLcode unreachable[] = {CURLE_COULDNT_RESOLVE_HOST, CURLE_COULDNT_RESOLVE_PROXY, CURLE_COULDNT_CONNECT};
enum { UNREACHABLE = sizeof unreachable / sizeof *unreachable };
static const CURLcode interrupted[] = {
    CURLE_OPERATION_TIMEDOUT, CURLE_PARTIAL_FILE,      CURLE_RECV_ERROR, CURLE_SEND_ERROR,
    CURLE_GOT_NOTHING,        CURLE_SSL_CONNECT_ERROR, CURLE_HTTP2,      CURLE_HTTP2_STREAM};
enum { INTERRUPTED = sizeof interrupted / sizeof *interrupted };

static bool is_among(CURLcode code, const CURLcode *codes, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (code == codes[i]) return true;
    return false;
}

/* SNUG_END: the answer is of no use to it. */
static snug_status finish(struct snug_http *http, struct snug_request *request) {
    RETURN_IF_ERROR(begin(request));
    const snug_status status = request->calls->finish(request);
    if (status == SNUG_END) return repeat(http, request, "the connection was cut", 0);
    request->done = status == SNUG_OK;
    return status;
}

static snug_status take_answer(struct snug_http *http, struct snug_request *request, const char *location,
                               double asked) {
    const long status = request->answer.status;
    bool stays;
    http->reached = true;
    if (status / 100 == 3 && location) {
        RETURN_IF_ERROR(follow(http, request, location, &stays));
        if (stays) return SNUG_OK;
        return finish(http, request);
    }
    if (is_good(request)) return finish(http, request);
    if (status == 416 && request->from > 0) return begin(request);
    if (!is_transient_status(status)) return request->calls->refuse(request);
    char reason[64];
    snprintf(reason, sizeof reason, "the server answers %ld", status);
    return repeat(http, request, reason, asked);
}

static snug_status take_failure(struct snug_http *http, struct snug_request *request, CURLcode code) {
    const char *reason = http->curl->easy_strerror(code);
    const bool reaches = !is_among(code, unreachable, UNREACHABLE);
    if (!reaches && !http->reached)
        return snug_fail(http->ctx, SNUG_E_IO, "cannot reach %s: %s: check the network, or the variable HF_ENDPOINT",
                         http->options.endpoint, reason);
    if (!reaches || is_among(code, interrupted, INTERRUPTED)) return repeat(http, request, reason, 0);
    return snug_fail(http->ctx, SNUG_E_IO, "%s: %s: %s", request->name, url_of(request), reason);
}

/* An attempt ended. */
static snug_status take(struct snug_http *http, struct snug_request *request, CURLcode code) {
    const struct snug_curl *curl = http->curl;
    char *location = NULL, *copy = NULL;
    curl_off_t asked = 0;
    curl->easy_getinfo(request->easy, CURLINFO_RESPONSE_CODE, &request->answer.status);
    curl->easy_getinfo(request->easy, CURLINFO_RETRY_AFTER, &asked);
    curl->easy_getinfo(request->easy, CURLINFO_REDIRECT_URL, &location);
    snug_status status = request->status;
    if (status == SNUG_OK && location) status = snug_strdup(http->ctx, location, &copy);
    drop_easy(http, request);
    if (status == SNUG_OK && (code == CURLE_OK || request->enough))
        status = take_answer(http, request, copy, (double)asked);
    else if (status == SNUG_OK)
        status = take_failure(http, request, code);
    free(copy);
    if (status != SNUG_END) return status;
    return repeat(http, request, "the server does not continue the file where it was cut", 0);
}

/* ---- running -------------------------------------------------------------------------------------------------- */

/* libcurl's own limit of speed is a mean over several seconds, which a fast beginning keeps high. What a server may do
 * as slowly as it likes, a byte every few seconds or an end after a few bytes, is bounded by the time of the file. */
static snug_status repeat_slow(struct snug_http *http, struct snug_request *request, double now) {
    char reason[96] = "";
    if (request->done || request->began == 0) return SNUG_OK;
    if (request->seconds_most > 0 && now > request->began + request->seconds_most)
        return snug_fail(http->ctx, SNUG_E_IO,
                         "%s: the server has not sent it within %.0f s: run the command again, it continues where this "
                         "one ended",
                         request->name, request->seconds_most);
    if (!request->easy) return SNUG_OK;
    if (now > request->heard + (double)http->options.idle_seconds) {
        snprintf(reason, sizeof reason, "the server sent nothing for %ld s", http->options.idle_seconds);
    } else if (request->calls->start && now > request->window_end) {
        const int64_t got = request->received - request->window_first;
        const double end = request->window_end;
        begin_window(request);
        if ((double)got < SNUG_HTTP_SLOWEST * (request->window_end - end))
            snprintf(reason, sizeof reason, "the server sends less than %d bytes per second", SNUG_HTTP_SLOWEST);
    }
    if (!*reason) return SNUG_OK;
    drop_easy(http, request);
    return repeat(http, request, reason, 0);
}

static snug_status take_ended(struct snug_http *http) {
    CURLMsg *message;
    int left;
    while ((message = http->curl->multi_info_read(http->multi, &left))) {
        struct snug_request *request;
        http->curl->easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &request);
        RETURN_IF_ERROR(take(http, request, message->data.result));
    }
    return SNUG_OK;
}

static int count_running(const struct snug_request *requests, size_t count) {
    int running = 0;
    for (size_t i = 0; i < count; i++) running += requests[i].easy != NULL;
    return running;
}

/* Milliseconds until a request is due, at most pause_seconds; libcurl waits less if something arrives. */
static int pause_of(const struct snug_request *requests, size_t count) {
    double pause = pause_seconds;
    const double now = snug_seconds();
    if (count_running(requests, count) >= PARALLEL) return (int)(1000 * pause);
    for (size_t i = 0; i < count; i++)
        if (!requests[i].done && !requests[i].easy && requests[i].due - now < pause) pause = requests[i].due - now;
    return pause > 0 ? (int)(1000 * pause) + 1 : 0;
}

/* Starts what is due. *left: requests that are not done. */
static snug_status start_due(struct snug_http *http, struct snug_request *requests, size_t count, size_t *left) {
    const double now = snug_seconds();
    int running = count_running(requests, count);
    *left = 0;
    for (size_t i = 0; i < count; i++) {
        struct snug_request *request = &requests[i];
        if (!request->done && !request->easy && running < PARALLEL && request->due <= now) {
            RETURN_IF_ERROR(start(http, request));
            running += request->easy != NULL;
        }
        *left += !request->done;
    }
    return SNUG_OK;
}

snug_status snug_http_run(struct snug_http *http, struct snug_request *requests, size_t count) {
    snug_status status = SNUG_OK;
    for (size_t left = count; left && status == SNUG_OK;) {
        int running;
        status = start_due(http, requests, count, &left);
        if (status == SNUG_OK) {
            http->curl->multi_perform(http->multi, &running);
            status = take_ended(http);
        }
        const double now = snug_seconds();
        for (size_t i = 0; i < count && status == SNUG_OK; i++) status = repeat_slow(http, &requests[i], now);
        if (status == SNUG_OK && snug_stop_asked(http->ctx))
            status = snug_fail(http->ctx, SNUG_E_INTERRUPTED,
                               "interrupted: what has arrived is kept, and the same command continues there");
        http->options.on_progress(http->options.user);
        if (status == SNUG_OK && left) http->curl->multi_poll(http->multi, NULL, 0, pause_of(requests, count), NULL);
    }
    for (size_t i = 0; i < count; i++) {
        drop_easy(http, &requests[i]);
        free(requests[i].location);
        requests[i].location = NULL;
    }
    return status;
}

snug_status snug_http_escape(struct snug_http *http, const char *text, char **out) {
    char *escaped = http->curl->easy_escape(NULL, text, (int)strlen(text));
    const snug_status status = escaped ? snug_strdup(http->ctx, escaped, out)
                                       : snug_fail(http->ctx, SNUG_E_MEMORY, "out of memory while making a URL");
    http->curl->free(escaped);
    return status;
}

static snug_status open_parts(struct snug_http *http) {
    RETURN_IF_ERROR(snug_curl_open(http->ctx, &http->curl));
    RETURN_IF_ERROR(origin_of(http, http->options.endpoint, &http->origin));
    if (!http->origin)
        return snug_fail(http->ctx, SNUG_E_USAGE, "HF_ENDPOINT %s is not a URL with http or https",
                         http->options.endpoint);
    if (http->options.token)
        RETURN_IF_ERROR(snug_format(http->ctx, &http->authorization, "Authorization: Bearer %s", http->options.token));
    http->multi = http->curl->multi_init();
    return http->multi ? SNUG_OK : snug_fail(http->ctx, SNUG_E_MEMORY, "out of memory while opening libcurl");
}

snug_status snug_http_open(snug_context *ctx, const struct snug_http_options *options, struct snug_http *out) {
    *out = (struct snug_http){.ctx = ctx, .options = *options};
    const snug_status status = open_parts(out);
    if (status != SNUG_OK) snug_http_close(out);
    return status;
}

void snug_http_close(struct snug_http *http) {
    if (http->multi) http->curl->multi_cleanup(http->multi);
    free(http->authorization);
    free(http->origin);
    *http = (struct snug_http){0};
}
