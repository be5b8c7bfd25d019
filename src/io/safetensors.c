/* SPDX-License-Identifier: Apache-2.0 */
#include "io/safetensors.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/utf8.h"
#include "io/file.h"
#include "io/file_kind.h"
#include "io/json.h"

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
              "safetensors is little-endian, and is read without conversion");

/* The format's own limit on the header's length. */
#define HEADER_MAX 100000000u
/* Values of 16 bits that are read at a time, into a thread's stack. */
enum { HALVES = 32768 };

struct snug_safetensors_file {
    int fd;
    char *path;
    uint64_t size, data; /* bytes of the file; offset of its data */
};

/* The format's types, with the bits of an element; dtype if snug supports the type. */
struct type_info {
    const char *name;
    int bits;
    bool readable;
    enum snug_dtype dtype;
};
static const struct type_info type_table[] = {
    {"F32", 32, true, SNUG_F32},    {"F16", 16, true, SNUG_F16},    {"BF16", 16, true, SNUG_BF16},
    {"I32", 32, false, SNUG_I32},   {"U8", 8, false, SNUG_U8},      {"BOOL", 8, false, SNUG_U8},
    {"I8", 8, false, SNUG_U8},      {"F8_E5M2", 8, false, SNUG_U8}, {"F8_E4M3", 8, false, SNUG_U8},
    {"F8_E8M0", 8, false, SNUG_U8}, {"I16", 16, false, SNUG_U8},    {"U16", 16, false, SNUG_U8},
    {"U32", 32, false, SNUG_U8},    {"F64", 64, false, SNUG_U8},    {"I64", 64, false, SNUG_U8},
    {"U64", 64, false, SNUG_U8},    {"C64", 64, false, SNUG_U8},    {"F4", 4, false, SNUG_U8},
    {"F6_E2M3", 6, false, SNUG_U8}, {"F6_E3M2", 6, false, SNUG_U8},
};

static const struct type_info *find_type(const char *name) {
    for (size_t i = 0; i < sizeof type_table / sizeof *type_table; i++)
        if (!strcmp(type_table[i].name, name)) return &type_table[i];
    return NULL;
}

static bool ends_with(const char *text, const char *end) {
    size_t length = strlen(text), tail = strlen(end);
    return length >= tail && !strcasecmp(text + length - tail, end);
}

/* Reads exactly size bytes at offset. Sizes were checked when the file was opened: a short read means that it changed.
 */
static snug_status read_at(snug_context *ctx, const struct snug_safetensors_file *file, void *out, size_t size,
                           uint64_t offset) {
    const ssize_t got = snug_read_at(file->fd, out, size, offset);
    if (got < 0) return snug_fail(ctx, SNUG_E_IO, "cannot read %s: %s", file->path, strerror(errno));
    if ((size_t)got < size)
        return snug_fail(ctx, SNUG_E_IO, "%s became shorter while it was read: nothing at byte %llu", file->path,
                         (unsigned long long)(offset + (uint64_t)got));
    return SNUG_OK;
}

/* ---- opening ---- */

/* weights_only keeps torch from executing code of the file. */
snug_status snug_fail_pickled(snug_context *ctx, const char *path) {
    static const char shards[] = ".bin.index.json";
    const char *slash = strrchr(path, '/');
    const bool index = ends_with(path, shards);
    const int folder = slash ? (int)(slash + 1 - path) : 0;
    const int stem = (int)(strlen(path) - (index ? strlen(shards) : 0));
    return snug_fail(ctx, SNUG_E_INPUT,
                     "%s %s pickled PyTorch file%s, which may run any code when %s loaded; snug reads safetensors. "
                     "Convert once in Python: import glob, torch; from safetensors.torch import save_file; "
                     "w = {k: v.clone() for f in glob.glob(\"%.*s%s\") "
                     "for k, v in torch.load(f, map_location=\"cpu\", weights_only=True).items()}; "
                     "save_file(w, \"%.*smodel.safetensors\", {\"format\": \"pt\"})",
                     path, index ? "names" : "is a", index ? "s" : "", index ? "they are" : "it is", stem, path,
                     index ? "-*.bin" : "", folder, path);
}

/* Reports what a file that is not safetensors seems to be. start: its first bytes. */
static snug_status not_safetensors(snug_context *ctx, const struct snug_safetensors_file *file,
                                   const unsigned char start[SNUG_KIND_BYTES], size_t size, uint64_t header) {
    const struct snug_file_kind *kind = snug_file_kind(start, size);
    if ((kind && kind->pickled) || ends_with(file->path, ".bin") || ends_with(file->path, ".pt") ||
        ends_with(file->path, ".pth"))
        return snug_fail_pickled(ctx, file->path);
    RETURN_IF_ERROR(snug_file_check_kind(ctx, file->path, start, size));
    return snug_fail(ctx, SNUG_E_INPUT,
                     "%s is not a safetensors file, or is truncated: it has %llu bytes, its header would take %llu",
                     file->path, (unsigned long long)file->size, (unsigned long long)header);
}

static snug_status bad_tensor(snug_context *ctx, const struct snug_safetensors_file *file, const char *name,
                              const char *what) {
    return snug_fail(ctx, SNUG_E_INPUT, "%s: tensor %s: %s", file->path, name, what);
}

/* Reads one entry of the header into *out (all but its name and file); *end is relative to the data. */
static snug_status parse_entry(snug_context *ctx, const struct snug_safetensors_file *file, const char *name,
                               const json_t *entry, struct snug_stored_tensor *out, uint64_t *end) {
    const json_t *type_name = json_object_get(entry, "dtype"), *shape = json_object_get(entry, "shape");
    const json_t *offsets = json_object_get(entry, "data_offsets");
    const json_t *first = json_array_get(offsets, 0), *last = json_array_get(offsets, 1);
    if (!json_is_string(type_name) || !json_is_array(shape) || json_array_size(offsets) != 2 ||
        !json_is_integer(first) || !json_is_integer(last))
        return bad_tensor(ctx, file, name, "needs \"dtype\", \"shape\" and two \"data_offsets\"");
    if (json_array_size(shape) > SNUG_SAFETENSORS_DIMS) return bad_tensor(ctx, file, name, "has over 8 dimensions");
    out->dims = (int)json_array_size(shape);
    out->count = 1;
    for (int i = 0; i < out->dims; i++) {
        const json_t *extent = json_array_get(shape, (size_t)i);
        out->shape[i] = json_integer_value(extent);
        if (!json_is_integer(extent) || out->shape[i] < 0 ||
            __builtin_mul_overflow(out->count, out->shape[i], &out->count))
            return bad_tensor(ctx, file, name, "has an impossible shape");
    }
    const struct type_info *type = find_type(json_string_value(type_name));
    snprintf(out->type_name, sizeof out->type_name, "%s", json_string_value(type_name));
    out->dtype = type ? type->dtype : SNUG_U8;
    out->readable = type && type->readable;

    int64_t from = json_integer_value(first), to = json_integer_value(last), bits;
    if (from < 0 || to < from) return bad_tensor(ctx, file, name, "has an end before its beginning");
    if (type && (__builtin_mul_overflow(out->count, type->bits, &bits) || bits % 8 || bits / 8 != to - from))
        return snug_fail(ctx, SNUG_E_INPUT, "%s: tensor %s: %lld elements of %s do not take the %lld bytes given",
                         file->path, name, (long long)out->count, out->type_name, (long long)(to - from));
    if ((uint64_t)to > file->size - file->data)
        return snug_fail(ctx, SNUG_E_INPUT,
                         "%s is truncated: tensor %s ends at byte %llu, the file has %llu; fetch the file again",
                         file->path, name, (unsigned long long)to + file->data, (unsigned long long)file->size);
    out->offset = file->data + (uint64_t)from;
    *end = (uint64_t)to;
    return SNUG_OK;
}

struct extent {
    uint64_t begin, end;
    const char *name;
};

static int compare_extents(const void *left, const void *right) {
    const struct extent *a = left, *b = right;
    const int by_begin = (a->begin > b->begin) - (a->begin < b->begin);
    return by_begin ? by_begin : (a->end > b->end) - (a->end < b->end);
}

/* The format requires that every byte of the data belongs to exactly one tensor. */
static snug_status check_extents(snug_context *ctx, const struct snug_safetensors_file *file, struct extent *extents,
                                 size_t count) {
    if (count) qsort(extents, count, sizeof *extents, compare_extents);
    uint64_t end = 0;
    for (size_t i = 0; i < count; end = extents[i++].end) {
        if (extents[i].begin < end)
            return snug_fail(ctx, SNUG_E_INPUT, "%s: tensors %s and %s overlap", file->path, extents[i - 1].name,
                             extents[i].name);
        if (extents[i].begin > end)
            return snug_fail(ctx, SNUG_E_INPUT, "%s: %llu bytes before tensor %s belong to none", file->path,
                             (unsigned long long)(extents[i].begin - end), extents[i].name);
    }
    if (end != file->size - file->data)
        return snug_fail(ctx, SNUG_E_INPUT, "%s: its tensors end at byte %llu, the file has %llu", file->path,
                         (unsigned long long)(file->data + end), (unsigned long long)file->size);
    return SNUG_OK;
}

/* ---- the header ---- */

/* A tensor's entry has a name, a type, at most 8 extents and 2 offsets. A longer entry is refused, so that the parsed
 * JSON is small for any length of the header. */
#define ENTRY_MAX 65536
/* The maximum number of bytes of a name in messages. */
#define NAME_SHOWN 100

/* The text of a header and the current position. text[length] is 0, which no token begins with. */
struct header {
    snug_context *ctx;
    const struct snug_safetensors_file *file;
    char *text;
    size_t length, at;
    size_t name, name_end; /* text of the current entry's name, without its quotes */
    bool metadata;         /* "__metadata__" was read */
};

static snug_status bad_header(const struct header *h, const char *expected) {
    return snug_fail(h->ctx, SNUG_E_INPUT, "%s: its header is not valid: %s expected at its byte %zu", h->file->path,
                     expected, h->at);
}

static void skip_space(struct header *h) { h->at += strspn(h->text + h->at, " \t\r\n"); }

/* A string; its contents are checked when it is parsed. */
static snug_status skip_string(struct header *h) {
    if (h->text[h->at] != '"') return bad_header(h, "a string");
    size_t at = h->at + 1;
    for (; h->text[at] != '"'; at++) {
        at += h->text[at] == '\\';
        if (at >= h->length) return bad_header(h, "the end of the string");
    }
    h->at = at + 1;
    return SNUG_OK;
}

/* A value of any form, to the end of its brackets or before the next comma or bracket. */
static snug_status skip_value(struct header *h) {
    size_t depth = 0;
    do {
        const char c = h->text[h->at];
        if (c == '"') {
            RETURN_IF_ERROR(skip_string(h));
            continue;
        }
        if (!c) return bad_header(h, "the end of the value");
        if (c == '[' || c == '{') depth++;
        if (c == ']' || c == '}') {
            if (!depth) return bad_header(h, "a value");
            depth--;
        }
        h->at++;
        if (depth)
            h->at += strcspn(h->text + h->at, "\"[]{}");
        else if (c != ']' && c != '}')
            h->at += strcspn(h->text + h->at, " \t\r\n,[]{}\"");
    } while (depth);
    return SNUG_OK;
}

/* A string that Jansson does not parse: checks its escapes; its bytes are UTF-8 without control characters, see
 * read_header(). */
static snug_status check_string(struct header *h) {
    const size_t from = h->at;
    RETURN_IF_ERROR(skip_string(h));
    for (size_t at = from + 1; at < h->at - 1; at++) {
        const unsigned char c = (unsigned char)h->text[at];
        const char *escape = c == '\\' ? h->text + ++at : NULL;
        const bool fine = c >= ' ' && (!escape || strchr("\"\\/bfnrt", *escape) ||
                                       (*escape == 'u' && strspn(escape + 1, "0123456789abcdefABCDEF") >= 4));
        if (fine) continue;
        h->at = at;
        return bad_header(h, "a character that JSON allows");
    }
    return SNUG_OK;
}

/* "__metadata__": null or an object of strings. It is checked but not used. */
static snug_status skip_metadata(struct header *h) {
    if (!strncmp(h->text + h->at, "null", 4)) {
        h->at += 4;
        return SNUG_OK;
    }
    if (h->text[h->at] != '{') return bad_header(h, "an object of strings as \"__metadata__\"");
    h->at++;
    skip_space(h);
    for (bool first = true; h->text[h->at] != '}'; first = false) {
        if (!first && h->text[h->at] != ',') return bad_header(h, "',' or '}'");
        if (!first) h->at++;
        skip_space(h);
        RETURN_IF_ERROR(check_string(h));
        skip_space(h);
        if (h->text[h->at] != ':') return bad_header(h, "':'");
        h->at++;
        skip_space(h);
        RETURN_IF_ERROR(check_string(h));
        skip_space(h);
    }
    h->at++;
    return SNUG_OK;
}

/* The number of bytes of the current name in a message: whole characters. */
static int shown_bytes(const struct header *h) {
    size_t shown = h->name_end - h->name;
    if (shown <= NAME_SHOWN) return (int)shown;
    for (shown = NAME_SHOWN; ((unsigned char)h->text[h->name + shown] & 0xC0) == 0x80;) shown--;
    return (int)shown;
}

/* Parses the entry text[from … at) as an object: the characters around it are replaced by braces. */
static snug_status parse_member(struct header *h, size_t from, json_t **out) {
    const int shown = shown_bytes(h);
    *out = NULL;
    if (h->at - from > ENTRY_MAX)
        return snug_fail(h->ctx, SNUG_E_INPUT,
                         "%s: tensor %.*s: its entry of %zu bytes is longer than any tensor needs", h->file->path,
                         shown, h->text + h->name, h->at - from);
    const char before = h->text[from - 1], after = h->text[h->at];
    json_error_t error;
    h->text[from - 1] = '{';
    h->text[h->at] = '}';
    *out = snug_json_parse(h->text + from - 1, h->at - from + 2, JSON_REJECT_DUPLICATES, &error);
    h->text[from - 1] = before;
    h->text[h->at] = after;
    if (*out) return SNUG_OK;
    return snug_fail(h->ctx, snug_json_status(&error), "%s: its header is not valid: tensor %.*s: %s", h->file->path,
                     shown, h->text + h->name, error.text);
}

struct extents {
    struct extent *items;
    size_t count, capacity, tensors;
};

/* Adds one tensor. */
static snug_status add_tensor(struct header *h, struct snug_safetensors *out, int number, const char *name,
                              const json_t *entry, struct extents *extents) {
    snug_context *ctx = h->ctx;
    struct snug_stored_tensor tensor = {.file = number};
    struct extent extent;
    RETURN_IF_ERROR(parse_entry(ctx, h->file, name, entry, &tensor, &extent.end));
    RETURN_IF_ERROR(snug_grow(ctx, (void **)&extents->items, &extents->capacity, extents->count + 1, sizeof extent));
    RETURN_IF_ERROR(snug_grow(ctx, (void **)&out->tensors, &extents->tensors, out->count + 1, sizeof tensor));
    RETURN_IF_ERROR(snug_strdup(ctx, name, &tensor.name));
    extent.begin = tensor.offset - h->file->data;
    extent.name = tensor.name;
    extents->items[extents->count++] = extent;
    out->tensors[out->count++] = tensor;
    return SNUG_OK;
}

static snug_status note_metadata(struct header *h) {
    if (h->metadata)
        return snug_fail(h->ctx, SNUG_E_INPUT, "%s: its header is not valid: \"__metadata__\" is listed twice",
                         h->file->path);
    h->metadata = true;
    return SNUG_OK;
}

/* One `"name": value` of the header. */
static snug_status read_member(struct header *h, struct snug_safetensors *out, int number, struct extents *extents) {
    static const char metadata[] = "\"__metadata__\"";
    const size_t from = h->at;
    RETURN_IF_ERROR(skip_string(h));
    h->name = from + 1;
    h->name_end = h->at - 1;
    skip_space(h);
    if (h->text[h->at] != ':') return bad_header(h, "':'");
    h->at++;
    skip_space(h);
    if (!strncmp(h->text + from, metadata, strlen(metadata))) {
        RETURN_IF_ERROR(note_metadata(h));
        return skip_metadata(h);
    }
    RETURN_IF_ERROR(skip_value(h));
    json_t *member, *entry;
    RETURN_IF_ERROR(parse_member(h, from, &member));
    snug_status status = SNUG_OK;
    const char *name;
    json_object_foreach(member, name, entry) {
        status = strcmp(name, "__metadata__") ? add_tensor(h, out, number, name, entry, extents) : note_metadata(h);
    }
    json_decref(member);
    return status;
}

/* Parses the header entry by entry: parsed as a whole it would take 25 times its size. */
static snug_status read_members(struct header *h, struct snug_safetensors *out, int number, struct extents *extents) {
    h->at = 1; /* after the brace, which was checked */
    skip_space(h);
    for (bool first = true; h->text[h->at] != '}'; first = false) {
        if (!first && h->text[h->at] != ',') return bad_header(h, "',' or '}'");
        if (!first) h->at++;
        skip_space(h);
        RETURN_IF_ERROR(read_member(h, out, number, extents));
        skip_space(h);
    }
    h->at++;
    skip_space(h);
    return h->at == h->length ? SNUG_OK : bad_header(h, "the end of the header");
}

/* Appends the header's tensors to those of out. */
static snug_status read_header(snug_context *ctx, struct snug_safetensors *out, int number, uint64_t length) {
    const struct snug_safetensors_file *file = &out->files[number];
    struct header h = {.ctx = ctx, .file = file, .length = (size_t)length};
    struct extents extents = {.tensors = out->count};
    RETURN_IF_ERROR(snug_alloc(ctx, h.length + 1, 1, (void **)&h.text));
    snug_status status = read_at(ctx, file, h.text, h.length, 8);
    if (status == SNUG_OK && memchr(h.text, 0, h.length))
        status = snug_fail(ctx, SNUG_E_INPUT, "%s: its header is not valid: a NUL byte", file->path);
    if (status == SNUG_OK && snug_utf8_invalid(h.text, h.length) < h.length)
        status = snug_fail(ctx, SNUG_E_INPUT, "%s: its header is not valid: not UTF-8 at its byte %zu", file->path,
                           snug_utf8_invalid(h.text, h.length));
    if (status == SNUG_OK) status = read_members(&h, out, number, &extents);
    free(h.text);
    if (status == SNUG_OK) status = check_extents(ctx, file, extents.items, extents.count);
    free(extents.items);
    return status;
}

/* Opens one file as the next of out. snug_safetensors_close() frees it, also after a failure. */
static snug_status open_file(snug_context *ctx, const struct snug_folder *in, const char *name,
                             struct snug_safetensors *out) {
    size_t capacity = out->file_count;
    void *grown = out->files;
    RETURN_IF_ERROR(snug_grow(ctx, &grown, &capacity, out->file_count + 1, sizeof *out->files));
    out->files = grown;
    int number = (int)out->file_count++;
    struct snug_safetensors_file *file = &out->files[number];
    *file = (struct snug_safetensors_file){.fd = -1};
    RETURN_IF_ERROR(snug_format(ctx, &file->path, SNUG_PATH, SNUG_PATH_IN(in, name)));
    struct stat info = {0};
    RETURN_IF_ERROR(snug_file_open(ctx, in, name, &file->fd));
    fstat(file->fd, &info);
    file->size = (uint64_t)info.st_size;

    unsigned char start[SNUG_KIND_BYTES] = {0};
    const size_t have = file->size < sizeof start ? (size_t)file->size : sizeof start;
    uint64_t length;
    RETURN_IF_ERROR(read_at(ctx, file, start, have, 0));
    memcpy(&length, start, sizeof length);
    if (have < 9 || length < 2 || length > HEADER_MAX || length > file->size - 8 || start[8] != '{')
        return not_safetensors(ctx, file, start, have, length);
    file->data = 8 + length;
    return read_header(ctx, out, number, length);
}

static int compare_names(const void *left, const void *right) {
    const struct snug_stored_tensor *a = left, *b = right;
    return strcmp(a->name, b->name);
}

static snug_status sort_tensors(snug_context *ctx, struct snug_safetensors *out) {
    if (out->count) qsort(out->tensors, out->count, sizeof *out->tensors, compare_names);
    for (size_t i = 1; i < out->count; i++) {
        const struct snug_stored_tensor *a = &out->tensors[i - 1], *b = &out->tensors[i];
        if (strcmp(a->name, b->name) != 0) continue;
        if (a->file == b->file)
            return snug_fail(ctx, SNUG_E_INPUT, "%s: tensor %s is listed twice", out->files[a->file].path, a->name);
        return snug_fail(ctx, SNUG_E_INPUT, "tensor %s is in %s and in %s", a->name, out->files[a->file].path,
                         out->files[b->file].path);
    }
    return SNUG_OK;
}

/* Opens the shard of one line of the index, unless it is open. opened: name → number of the file. */
static snug_status open_shard(snug_context *ctx, const struct snug_folder *in, const char *path, const char *tensor,
                              const json_t *shard, json_t *opened, struct snug_safetensors *out) {
    const char *name = json_string_value(shard);
    if (!name || !*name || strchr(name, '/') || strstr(name, ".."))
        return snug_fail(ctx, SNUG_E_INPUT, "%s: tensor %s: its shard must be the name of a file in the same folder",
                         path, tensor);
    if (json_object_get(opened, name)) return SNUG_OK;
    const char *slash = strrchr(path, '/');
    char *shard_path;
    RETURN_IF_ERROR(snug_format(ctx, &shard_path, "%.*s%s", slash ? (int)(slash - path) + 1 : 0, path, name));
    snug_status status = open_file(ctx, in, shard_path, out);
    free(shard_path);
    if (status == SNUG_OK && json_object_set_new(opened, name, json_integer((json_int_t)out->file_count - 1)))
        status = snug_fail(ctx, SNUG_E_MEMORY, "out of memory while opening %s", path);
    return status;
}

static snug_status open_index(snug_context *ctx, const struct snug_folder *in, const char *path,
                              struct snug_safetensors *out) {
    json_t *index, *opened = json_object(), *shard;
    snug_status status = snug_json_read(ctx, in, path, &index);
    json_t *map = json_object_get(index, "weight_map");
    if (status == SNUG_OK && json_object_size(map) == 0)
        status = snug_fail(ctx, SNUG_E_INPUT, "%s: needs \"weight_map\", the shard of each tensor", path);
    const char *name;
    json_object_foreach(map, name, shard) {
        if (status == SNUG_OK) status = open_shard(ctx, in, path, name, shard, opened, out);
    }
    if (status == SNUG_OK) status = sort_tensors(ctx, out);
    json_object_foreach(map, name, shard) {
        const struct snug_stored_tensor *tensor = status == SNUG_OK ? snug_safetensors_find(out, name) : NULL;
        if (status != SNUG_OK) break;
        if (!tensor || tensor->file != json_integer_value(json_object_get(opened, json_string_value(shard))))
            status = snug_fail(ctx, SNUG_E_INPUT, "%s: tensor %s is not in its shard %s", path, name,
                               json_string_value(shard));
    }
    json_decref(opened);
    json_decref(index);
    return status;
}

snug_status snug_safetensors_open(snug_context *ctx, const struct snug_folder *in, const char *name,
                                  struct snug_safetensors *out) {
    *out = (struct snug_safetensors){0};
    snug_status status;
    if (ends_with(name, ".json")) {
        status = open_index(ctx, in, name, out);
    } else {
        status = open_file(ctx, in, name, out);
        if (status == SNUG_OK) status = sort_tensors(ctx, out);
    }
    if (status != SNUG_OK) snug_safetensors_close(out);
    return status;
}

void snug_safetensors_close(struct snug_safetensors *files) {
    for (size_t i = 0; i < files->count; i++) free(files->tensors[i].name);
    for (size_t i = 0; i < files->file_count; i++) {
        if (files->files[i].fd >= 0) close(files->files[i].fd);
        free(files->files[i].path);
    }
    free(files->tensors);
    free(files->files);
    *files = (struct snug_safetensors){0};
}

const struct snug_stored_tensor *snug_safetensors_find(const struct snug_safetensors *files, const char *name) {
    if (!files->count) return NULL;
    struct snug_stored_tensor key = {.name = (char *)name};
    return bsearch(&key, files->tensors, files->count, sizeof key, compare_names);
}

/* ---- reading ---- */

static snug_status check_range(snug_context *ctx, const struct snug_safetensors_file *file,
                               const struct snug_stored_tensor *tensor, int64_t first, int64_t count) {
    if (first >= 0 && count >= 0 && first <= tensor->count && count <= tensor->count - first) return SNUG_OK;
    return snug_fail(ctx, SNUG_E_INTERNAL, "%s: tensor %s: requested elements %lld + %lld of %lld", file->path,
                     tensor->name, (long long)first, (long long)count, (long long)tensor->count);
}

snug_status snug_safetensors_read_stored(snug_context *ctx, const struct snug_safetensors *files,
                                         const struct snug_stored_tensor *tensor, int64_t first, int64_t count,
                                         void *out) {
    const struct snug_safetensors_file *file = &files->files[tensor->file];
    const int64_t size = snug_dtype_size(tensor->dtype);
    if (strcmp(tensor->type_name, snug_dtype_name(tensor->dtype)) != 0)
        return snug_fail(ctx, SNUG_E_INPUT, "%s: tensor %s has type %s, which snug does not support", file->path,
                         tensor->name, tensor->type_name);
    RETURN_IF_ERROR(check_range(ctx, file, tensor, first, count));
    return read_at(ctx, file, out, (size_t)(count * size), tensor->offset + (uint64_t)(first * size));
}

/* A loop for each type, which the compiler vectorizes. */
static void widen(enum snug_dtype dtype, const uint16_t *halves, int64_t count, float *out) {
    if (dtype == SNUG_BF16)
        for (int64_t i = 0; i < count; i++) out[i] = snug_bf16_to_f32(halves[i]);
    else
        for (int64_t i = 0; i < count; i++) out[i] = snug_f16_to_f32(halves[i]);
}

snug_status snug_safetensors_read(snug_context *ctx, const struct snug_safetensors *files,
                                  const struct snug_stored_tensor *tensor, int64_t first, int64_t count, float *out) {
    const struct snug_safetensors_file *file = &files->files[tensor->file];
    if (!tensor->readable)
        return snug_fail(ctx, SNUG_E_INPUT, "%s: tensor %s has type %s; snug reads F32, F16 and BF16", file->path,
                         tensor->name, tensor->type_name);
    if (tensor->dtype == SNUG_F32) return snug_safetensors_read_stored(ctx, files, tensor, first, count, out);
    RETURN_IF_ERROR(check_range(ctx, file, tensor, first, count));
    uint64_t offset = tensor->offset + (uint64_t)(first * snug_dtype_size(tensor->dtype));
    uint16_t buffer[HALVES];
    while (count > 0) {
        const int64_t part = count < HALVES ? count : HALVES;
        RETURN_IF_ERROR(read_at(ctx, file, buffer, (size_t)part * sizeof *buffer, offset));
        widen(tensor->dtype, buffer, part, out); /* NOLINT(clang-analyzer-core.CallAndMessage): part * 2 is never 0 */
        out += part;
        count -= part;
        offset += (uint64_t)part * sizeof *buffer;
    }
    return SNUG_OK;
}

bool snug_safetensors_try(const struct snug_safetensors *files, const struct snug_stored_tensor *tensor, int64_t first,
                          int64_t count, bool stored, void *out) {
    const int fd = files->files[tensor->file].fd;
    const int64_t size = snug_dtype_size(tensor->dtype);
    const uint64_t offset = tensor->offset + (uint64_t)(first * size);
    float *values = out;
    uint16_t buffer[HALVES];
    if (stored || tensor->dtype == SNUG_F32)
        return snug_read_at(fd, out, (size_t)(count * size), offset) == count * size;
    for (int64_t i = 0; i < count; i += HALVES) {
        const int64_t part = count - i < HALVES ? count - i : HALVES;
        if (snug_read_at(fd, buffer, (size_t)(part * size), offset + (uint64_t)(i * size)) != part * size) return false;
        widen(tensor->dtype, buffer, part, values + i);
    }
    return true;
}

/* ---- writing ---- */

/* Larger elements first, so that each tensor is aligned to its own; then by name, as the format's own writer does. */
static int compare_entries(const void *left, const void *right) {
    const struct snug_tensor_entry *a = *(const struct snug_tensor_entry *const *)left;
    const struct snug_tensor_entry *b = *(const struct snug_tensor_entry *const *)right;
    int64_t difference = snug_dtype_size(b->dtype) - snug_dtype_size(a->dtype);
    return difference ? (int)difference : strcmp(a->name, b->name);
}

static snug_status bytes_of(snug_context *ctx, const struct snug_tensor_entry *entry, int64_t *bytes) {
    *bytes = snug_dtype_size(entry->dtype);
    bool fits = true;
    for (int i = 0; fits && i < entry->dims; i++) fits = !__builtin_mul_overflow(*bytes, entry->shape[i], bytes);
    return fits ? SNUG_OK : snug_fail(ctx, SNUG_E_INTERNAL, "tensor %s has an impossible shape", entry->name);
}

/* Lists the entry in the header; *end: of the data so far. */
static snug_status list_entry(snug_context *ctx, json_t *header, struct snug_tensor_entry *entry, int64_t *end) {
    int64_t bytes;
    entry->offset = *end;
    RETURN_IF_ERROR(bytes_of(ctx, entry, &bytes));
    if (json_object_get(header, entry->name) || __builtin_add_overflow(entry->offset, bytes, end))
        return snug_fail(ctx, SNUG_E_INTERNAL, "tensor %s is given twice, or too large", entry->name);
    json_t *shape = json_array();
    bool whole = true;
    for (int i = 0; i < entry->dims; i++) whole &= json_array_append_new(shape, json_integer(entry->shape[i])) == 0;
    json_t *listed = json_pack("{s:s, s:o, s:[I, I]}", "dtype", snug_dtype_name(entry->dtype), "shape", shape,
                               "data_offsets", (json_int_t)entry->offset, (json_int_t)*end);
    if (json_object_set_new(header, entry->name, listed) || !whole)
        return snug_fail(ctx, SNUG_E_MEMORY, "cannot list tensor %s: out of memory, or not UTF-8", entry->name);
    return SNUG_OK;
}

static snug_status make_header(snug_context *ctx, struct snug_tensor_entry **entries, size_t count, char **text,
                               int64_t *end) {
    json_t *header = json_pack("{s:{s:s}}", "__metadata__", "format", "pt");
    snug_status status = header ? SNUG_OK : snug_fail(ctx, SNUG_E_MEMORY, "out of memory while listing tensors");
    *end = 0;
    for (size_t i = 0; i < count && status == SNUG_OK; i++) status = list_entry(ctx, header, entries[i], end);
    if (status == SNUG_OK) status = snug_json_text(ctx, header, JSON_COMPACT, text);
    json_decref(header);
    return status;
}

/* The length of the header, the header, and spaces up to a multiple of 8. */
static snug_status make_head(snug_context *ctx, const char *header, struct snug_safetensors_head *out) {
    const size_t length = strlen(header);
    const uint64_t padded = length + -length % 8;
    RETURN_IF_ERROR(snug_alloc(ctx, (size_t)padded + sizeof padded, 1, (void **)&out->text));
    memcpy(out->text, &padded, sizeof padded);
    memset(out->text + sizeof padded, ' ', (size_t)padded);
    memcpy(out->text + sizeof padded, header, length);
    out->bytes = (int64_t)(padded + sizeof padded);
    return SNUG_OK;
}

snug_status snug_safetensors_lay_out(snug_context *ctx, struct snug_tensor_entry *tensors, size_t count,
                                     struct snug_safetensors_head *out) {
    void *memory;
    char *header = NULL;
    int64_t end;
    *out = (struct snug_safetensors_head){0};
    RETURN_IF_ERROR(snug_alloc(ctx, count, sizeof(struct snug_tensor_entry *), &memory));
    struct snug_tensor_entry **entries = memory;
    for (size_t i = 0; i < count; i++) entries[i] = &tensors[i];
    if (count) qsort(entries, count, sizeof *entries, compare_entries);
    snug_status status = make_header(ctx, entries, count, &header, &end);
    if (status == SNUG_OK) status = make_head(ctx, header, out);
    for (size_t i = 0; i < count; i++) tensors[i].offset += out->bytes;
    out->file_bytes = status == SNUG_OK ? out->bytes + end : 0;
    free(header);
    free(memory);
    return status;
}
