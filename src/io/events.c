/* SPDX-License-Identifier: Apache-2.0 */
#include "io/events.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "io/folder.h"

struct snug_events {
    snug_context *ctx;
    FILE *file;
    char *path;
};

/* A message being encoded, in memory of the caller that is large enough. */
struct message {
    uint8_t *bytes;
    size_t size;
};
enum { SMALL = 1024 }; /* bytes of a message without a text: tags are short */

/* CRC-32C (Castagnoli, reflected polynomial 0x82F63B78), bit by bit: records are some 50 bytes. */
static uint32_t crc32c(const uint8_t *data, size_t size) {
    uint32_t crc = ~0u;
    for (size_t i = 0; i < size; i++) {
        crc ^= data[i];
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (0x82F63B78u & -(crc & 1u));
    }
    return ~crc;
}

/* TFRecord stores checksums rotated and shifted, so that a checksum of data that contains checksums is still useful. */
static uint32_t masked_crc(const void *data, size_t size) {
    uint32_t crc = crc32c(data, size);
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

static void put_varint(struct message *message, uint64_t value) {
    for (; value >= 0x80; value >>= 7) message->bytes[message->size++] = (uint8_t)(value | 0x80);
    message->bytes[message->size++] = (uint8_t)value;
}

/* Wire types of Protocol Buffers. */
enum wire { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };
static void put_key(struct message *message, unsigned field, enum wire wire) { put_varint(message, field << 3 | wire); }

static void put_raw(struct message *message, const void *data, size_t size) {
    memcpy(message->bytes + message->size, data, size);
    message->size += size;
}

static void put_bytes(struct message *message, unsigned field, const void *data, size_t size) {
    put_key(message, field, WIRE_BYTES);
    put_varint(message, size);
    put_raw(message, data, size);
}

static snug_status put_record(struct snug_events *events, const struct message *message) {
    uint64_t length = message->size;
    uint32_t length_crc = masked_crc(&length, sizeof length), data_crc = masked_crc(message->bytes, message->size);
    if (fwrite(&length, sizeof length, 1, events->file) == 1 &&
        fwrite(&length_crc, sizeof length_crc, 1, events->file) == 1 &&
        fwrite(message->bytes, message->size, 1, events->file) == 1 &&
        fwrite(&data_crc, sizeof data_crc, 1, events->file) == 1 && fflush(events->file) == 0)
        return SNUG_OK;
    return snug_fail(events->ctx, SNUG_E_IO, "cannot write %s: %s", events->path, strerror(errno));
}

static snug_status open_new(struct snug_events *events, const struct snug_folder *folder) {
    char host[256] = "localhost";
    gethostname(host, sizeof host - 1);
    for (int number = 0; !events->file; number++) {
        free(events->path);
        events->path = NULL;
        RETURN_IF_ERROR(snug_format(events->ctx, &events->path, "%s/events.out.tfevents.%010lld.%s.%ld.%d",
                                    folder->path, (long long)time(NULL), host, (long)getpid(), number));
        const int fd = openat(folder->fd, strrchr(events->path, '/') + 1,
                              O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, folder->mode);
        const bool exists = fd < 0 && errno == EEXIST;
        events->file = fd < 0 ? NULL : fdopen(fd, "w");
        if (!events->file && fd >= 0) close(fd);
        if (!events->file && !exists)
            return snug_fail(events->ctx, SNUG_E_IO, "cannot write %s: %s", events->path, strerror(errno));
    }
    return SNUG_OK;
}

snug_status snug_events_open(snug_context *ctx, const struct snug_folder *in, const char *folder, mode_t mode,
                             struct snug_events **out) {
    struct snug_folder opened;
    void *memory;
    *out = NULL;
    RETURN_IF_ERROR(snug_folder_make(ctx, in, folder, mode, &opened));
    snug_status status = snug_alloc(ctx, 1, sizeof(struct snug_events), &memory);
    struct snug_events *events = memory;
    if (status == SNUG_OK) {
        events->ctx = ctx;
        status = open_new(events, &opened);
    }
    snug_folder_close(&opened);
    if (status == SNUG_OK) {
        static const char version[] = "brain.Event:2";
        uint8_t bytes[SMALL];
        struct message event = {.bytes = bytes};
        double now = (double)time(NULL);
        put_key(&event, 1, WIRE_FIXED64); /* Event.wall_time */
        put_raw(&event, &now, sizeof now);
        put_bytes(&event, 3, version, sizeof version - 1); /* Event.file_version */
        status = put_record(events, &event);
    }
    if (status == SNUG_OK)
        *out = events;
    else
        snug_events_close(events);
    return status;
}

snug_status snug_events_scalar(struct snug_events *events, const char *tag, int64_t step, double value,
                               double wall_time) {
    uint8_t bytes[3][SMALL];
    struct message scalar = {.bytes = bytes[0]}, summary = {.bytes = bytes[1]}, event = {.bytes = bytes[2]};
    size_t length = strlen(tag);
    if (length > SMALL - 100) return snug_fail(events->ctx, SNUG_E_INTERNAL, "an event's tag has %zu bytes", length);
    float simple = (float)value;
    put_bytes(&scalar, 1, tag, length); /* Summary.Value.tag */
    put_key(&scalar, 2, WIRE_FIXED32);  /* Summary.Value.simple_value */
    put_raw(&scalar, &simple, sizeof simple);
    put_bytes(&summary, 1, scalar.bytes, scalar.size); /* Summary.value */
    put_key(&event, 1, WIRE_FIXED64);                  /* Event.wall_time */
    put_raw(&event, &wall_time, sizeof wall_time);
    put_key(&event, 2, WIRE_VARINT); /* Event.step */
    put_varint(&event, (uint64_t)step);
    put_bytes(&event, 5, summary.bytes, summary.size); /* Event.summary */
    return put_record(events, &event);
}

/* Summary.Value.metadata of a text: SummaryMetadata.plugin_data.plugin_name. */
static void put_text_plugin(struct message *value) {
    uint8_t bytes[2][SMALL];
    struct message plugin = {.bytes = bytes[0]}, metadata = {.bytes = bytes[1]};
    put_bytes(&plugin, 1, "text", 4);
    put_bytes(&metadata, 1, plugin.bytes, plugin.size);
    put_bytes(value, 9, metadata.bytes, metadata.size);
}

/* Summary.Value.tensor: TensorProto with dtype DT_STRING, tensor_shape [1] and string_val; in tensor's memory. */
static void put_text_tensor(struct message *value, struct message *tensor, const char *text) {
    uint8_t bytes[2][SMALL];
    struct message dimension = {.bytes = bytes[0]}, shape = {.bytes = bytes[1]};
    put_key(&dimension, 1, WIRE_VARINT);
    put_varint(&dimension, 1);
    put_bytes(&shape, 2, dimension.bytes, dimension.size);
    put_key(tensor, 1, WIRE_VARINT);
    put_varint(tensor, 7);
    put_bytes(tensor, 2, shape.bytes, shape.size);
    put_bytes(tensor, 8, text, strlen(text));
    put_bytes(value, 8, tensor->bytes, tensor->size);
}

snug_status snug_events_text(struct snug_events *events, const char *tag, const char *text, double wall_time) {
    const size_t room = strlen(tag) + strlen(text) + SMALL;
    void *memory;
    RETURN_IF_ERROR(snug_alloc(events->ctx, 4, room, &memory));
    uint8_t *bytes = memory;
    struct message tensor = {.bytes = bytes}, value = {.bytes = bytes + room}, summary = {.bytes = bytes + 2 * room},
                   event = {.bytes = bytes + 3 * room};
    put_bytes(&value, 1, tag, strlen(tag));
    put_text_plugin(&value);
    put_text_tensor(&value, &tensor, text);
    put_bytes(&summary, 1, value.bytes, value.size);
    put_key(&event, 1, WIRE_FIXED64);
    put_raw(&event, &wall_time, sizeof wall_time);
    put_bytes(&event, 5, summary.bytes, summary.size);
    const snug_status status = put_record(events, &event);
    free(memory);
    return status;
}

void snug_events_close(struct snug_events *events) {
    if (!events) return;
    if (events->file) fclose(events->file); /* each record was flushed: closing cannot fail */
    free(events->path);
    free(events);
}
