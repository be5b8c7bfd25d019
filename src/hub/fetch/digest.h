/* SPDX-License-Identifier: Apache-2.0 */
/* The hash of a file that its ETag on a hub is: sha256 for files in large file storage, git's blob hash for others. */
#ifndef SNUG_HUB_FETCH_DIGEST_H
#define SNUG_HUB_FETCH_DIGEST_H

#include <nettle/sha1.h>
#include <nettle/sha2.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum snug_digest_kind { SNUG_DIGEST_NONE, SNUG_DIGEST_GIT, SNUG_DIGEST_SHA256 };

struct snug_digest {
    enum snug_digest_kind kind;
    union {
        struct sha1_ctx sha1;
        struct sha256_ctx sha256;
    };
};

/* By the form of an ETag: 40 or 64 hexadecimal digits, in any case; any other one is no hash. */
enum snug_digest_kind snug_digest_kind_of(const char *etag);
/* "sha256" or "git sha1". */
const char *snug_digest_name(enum snug_digest_kind kind);
/* size: of the whole file, which git hashes first. */
void snug_digest_begin(struct snug_digest *digest, enum snug_digest_kind kind, int64_t size);
void snug_digest_add(struct snug_digest *digest, const void *data, size_t size);
enum { SNUG_DIGEST_TEXT = 2 * SHA256_DIGEST_SIZE + 1 };
/* Ends the digest: its lower-case hexadecimal digits; "" if there is none. */
void snug_digest_end(struct snug_digest *digest, char text[SNUG_DIGEST_TEXT]);

#endif
