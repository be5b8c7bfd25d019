/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/fetch/digest.h"

#include <stdio.h>
#include <string.h>

enum snug_digest_kind snug_digest_kind_of(const char *etag) {
    const size_t length = strlen(etag);
    if (strspn(etag, "0123456789abcdefABCDEF") != length) return SNUG_DIGEST_NONE;
    if (length == 2 * SHA256_DIGEST_SIZE) return SNUG_DIGEST_SHA256;
    return length == 2 * SHA1_DIGEST_SIZE ? SNUG_DIGEST_GIT : SNUG_DIGEST_NONE;
}

const char *snug_digest_name(enum snug_digest_kind kind) { return kind == SNUG_DIGEST_SHA256 ? "sha256" : "git sha1"; }

void snug_digest_begin(struct snug_digest *digest, enum snug_digest_kind kind, int64_t size) {
    digest->kind = kind;
    if (kind == SNUG_DIGEST_SHA256) sha256_init(&digest->sha256);
    if (kind != SNUG_DIGEST_GIT) return;
    char header[32]; /* git's object: its kind, its size and a NUL, then the content */
    const int length = snprintf(header, sizeof header, "blob %lld", (long long)size);
    sha1_init(&digest->sha1);
    sha1_update(&digest->sha1, (size_t)length + 1, (const uint8_t *)header);
}

void snug_digest_add(struct snug_digest *digest, const void *data, size_t size) {
    if (digest->kind == SNUG_DIGEST_SHA256) sha256_update(&digest->sha256, size, data);
    if (digest->kind == SNUG_DIGEST_GIT) sha1_update(&digest->sha1, size, data);
}

void snug_digest_end(struct snug_digest *digest, char text[SNUG_DIGEST_TEXT]) {
    uint8_t bytes[SHA256_DIGEST_SIZE];
    size_t size = 0;
    if (digest->kind == SNUG_DIGEST_SHA256) sha256_digest(&digest->sha256, size = SHA256_DIGEST_SIZE, bytes);
    if (digest->kind == SNUG_DIGEST_GIT) sha1_digest(&digest->sha1, size = SHA1_DIGEST_SIZE, bytes);
    *text = '\0';
    for (size_t i = 0; i < size; i++) snprintf(text + 2 * i, 3, "%02x", bytes[i]);
}
