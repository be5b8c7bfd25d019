/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors: round trips, shards, and invalid files of every kind. */
#include <errno.h>
#include <math.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io/safetensors.h"
#include "sanitized.h"
#include "scratch.h"
#include "write_tensors.h"

#define FIXTURE struct scratch *s, scratch_setup, scratch_teardown

/* Writes a file with the given header and size bytes of data, 0, 1, 2, … */
static const char *write_raw(struct scratch *s, const char *name, const char *header, size_t size) {
    unsigned char bytes[4096];
    uint64_t length = strlen(header);
    assert_true(8 + length + size <= sizeof bytes);
    memcpy(bytes, &length, 8);
    memcpy(bytes + 8, header, length);
    for (size_t i = 0; i < size; i++) bytes[8 + length + i] = (unsigned char)i;
    return scratch_write(s, name, bytes, 8 + length + size);
}

static void refuses(struct scratch *s, const char *header, size_t size, const char *sentence) {
    struct snug_safetensors files;
    snug_status status = snug_safetensors_open(s->ctx, NULL, write_raw(s, "m.safetensors", header, size), &files);
    assert_contains(snug_error_message(s->ctx), "m.safetensors");
    assert_fails(s, status, SNUG_E_INPUT, sentence);
    assert_null(files.tensors);
    assert_null(files.files);
}

FIXTURE_TEST(round_trip) {
    enum { COUNT = 70002 }; /* more than twice the reader's buffer */
    static float singles[COUNT];
    static uint16_t halves[COUNT];
    for (int i = 0; i < COUNT; i++) {
        singles[i] = (float)i * 0.37f - 1000;
        halves[i] = (uint16_t)(i * 3);
    }
    const uint8_t codes[3] = {7, 8, 9};
    const struct values_to_write sources[] = {
        {.name = "u", .dtype = SNUG_U8, .dims = 1, .shape = {3}, .data = codes},
        {.name = "h.f16", .dtype = SNUG_F16, .dims = 1, .shape = {COUNT}, .data = halves},
        {.name = "b\"\xC3\xA9", .dtype = SNUG_BF16, .dims = 2, .shape = {3, COUNT / 3}, .data = halves},
        {.name = "w", .dtype = SNUG_F32, .dims = 3, .shape = {1, COUNT / 3, 3}, .data = singles},
        {.name = "scalar", .dtype = SNUG_F32, .dims = 0, .data = singles + 1},
        {.name = "none", .dtype = SNUG_F32, .dims = 2, .shape = {5, 0}, .data = NULL},
    };
    struct snug_safetensors files;
    assert_ok(s, write_tensors(s->ctx, scratch_path(s, "a.safetensors"), sources, 6));
    assert_ok(s, snug_safetensors_open(s->ctx, NULL, s->path, &files));
    assert_int_equal(files.count, 6);
    for (size_t i = 1; i < files.count; i++) assert_true(strcmp(files.tensors[i - 1].name, files.tensors[i].name) < 0);
    static float found[COUNT], tried[COUNT];
    for (int i = 0; i < 6; i++) {
        const struct values_to_write *source = &sources[i];
        const struct snug_stored_tensor *tensor = snug_safetensors_find(&files, source->name);
        assert_non_null(tensor);
        assert_string_equal(tensor->type_name, snug_dtype_name(source->dtype));
        assert_int_equal(tensor->dtype, source->dtype);
        assert_int_equal(tensor->dims, source->dims);
        assert_memory_equal(tensor->shape, source->shape, (size_t)source->dims * sizeof *source->shape);
        assert_int_equal(tensor->offset % (uint64_t)snug_dtype_size(source->dtype), 0);
        assert_int_equal(tensor->readable, i != 0);
        if (!tensor->readable) continue;
        for (int64_t first = 0; first < tensor->count; first += 26667) { /* parts that cross buffers */
            int64_t count = tensor->count - first < 36000 ? tensor->count - first : 36000;
            assert_ok(s, snug_safetensors_read(s->ctx, &files, tensor, first, count, found));
            for (int64_t k = 0; k < count; k++) {
                uint16_t half = halves[first + k];
                float expected = source->dtype == SNUG_F16    ? snug_f16_to_f32(half)
                                 : source->dtype == SNUG_BF16 ? snug_bf16_to_f32(half)
                                                              : ((const float *)source->data)[first + k];
                assert_memory_equal(&found[k], &expected, sizeof expected);
            }
            /* As several threads read. */
            const size_t size = (size_t)snug_dtype_size(source->dtype);
            assert_true(snug_safetensors_try(&files, tensor, first, count, false, tried));
            assert_memory_equal(tried, found, (size_t)count * sizeof *found);
            assert_true(snug_safetensors_try(&files, tensor, first, count, true, tried));
            assert_memory_equal(tried, (const char *)source->data + (size_t)first * size, (size_t)count * size);
        }
    }
    const struct snug_stored_tensor *w = snug_safetensors_find(&files, "w");
    assert_ok(s, snug_safetensors_read(s->ctx, &files, w, w->count, 0, found));
    assert_fails(s, snug_safetensors_read(s->ctx, &files, w, 1, w->count, found), SNUG_E_INTERNAL, "tensor w");
    assert_fails(s, snug_safetensors_read(s->ctx, &files, w, -1, 1, found), SNUG_E_INTERNAL, "tensor w");
    assert_fails(s, snug_safetensors_read(s->ctx, &files, w, 0, -1, found), SNUG_E_INTERNAL, "tensor w");
    assert_fails(s, snug_safetensors_read(s->ctx, &files, w, w->count + 1, 0, found), SNUG_E_INTERNAL, "tensor w");
    assert_fails(s, snug_safetensors_read(s->ctx, &files, snug_safetensors_find(&files, "u"), 0, 1, found),
                 SNUG_E_INPUT, "tensor u has type U8");
    assert_null(snug_safetensors_find(&files, "nothing"));
    assert_int_equal(truncate(scratch_path(s, "a.safetensors"), 1000), 0);
    assert_fails(s, snug_safetensors_read(s->ctx, &files, w, 0, w->count, found), SNUG_E_IO, "became shorter");
    for (size_t i = 0; i < files.count; i++)
        if (files.tensors[i].count > 3) {
            assert_false(snug_safetensors_try(&files, &files.tensors[i], 0, files.tensors[i].count, false, found));
            assert_false(snug_safetensors_try(&files, &files.tensors[i], 0, files.tensors[i].count, true, found));
        }
    snug_safetensors_close(&files);
    snug_safetensors_close(&files);
}

FIXTURE_TEST(written_form) {
    const float two[2] = {1, 2};
    const struct values_to_write source = {.name = "a", .dtype = SNUG_F32, .dims = 1, .shape = {2}, .data = two};
    char *text;
    size_t size;
    assert_ok(s, write_tensors(s->ctx, scratch_path(s, "a.safetensors"), &source, 1));
    assert_ok(s, snug_file_read(s->ctx, NULL, s->path, &text, &size));
    static const char header[] = "{\"__metadata__\":{\"format\":\"pt\"},"
                                 "\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}";
    uint64_t length;
    memcpy(&length, text, 8);
    assert_int_equal(length % 8, 0);
    assert_true(length >= sizeof header - 1 && length < sizeof header + 7);
    assert_memory_equal(text + 8, header, sizeof header - 1);
    assert_int_equal(size, 8 + length + 8);
    assert_memory_equal(text + 8 + length, two, 8);
    free(text);
    struct snug_safetensors files;
    assert_ok(s, write_tensors(s->ctx, scratch_path(s, "empty.safetensors"), NULL, 0));
    assert_ok(s, snug_safetensors_open(s->ctx, NULL, s->path, &files));
    assert_int_equal(files.count, 0);
    assert_null(snug_safetensors_find(&files, "a"));
    snug_safetensors_close(&files);

    const struct values_to_write twice[] = {source, source};
    assert_fails(s, write_tensors(s->ctx, scratch_path(s, "b"), twice, 2), SNUG_E_INTERNAL, "tensor a");
    struct values_to_write huge = {.name = "h", .dims = 2, .shape = {INT64_MAX, 2}};
    assert_fails(s, write_tensors(s->ctx, s->path, &huge, 1), SNUG_E_INTERNAL, "tensor h");
    const struct values_to_write halves_of_all[] = {{.name = "h", .dtype = SNUG_U8, .dims = 1, .shape = {1LL << 62}},
                                                    {.name = "i", .dtype = SNUG_U8, .dims = 1, .shape = {1LL << 62}}};
    assert_fails(s, write_tensors(s->ctx, s->path, halves_of_all, 2), SNUG_E_INTERNAL, "tensor i");
    assert_false(snug_file_exists(NULL, s->path));
    assert_fails(s, write_tensors(s->ctx, scratch_path(s, "none/b"), &source, 1), SNUG_E_IO, "none/b");
}

#define T(type, shape, begin, end) "{\"dtype\":\"" type "\",\"shape\":" shape ",\"data_offsets\":[" begin "," end "]}"

FIXTURE_TEST(types) {
    struct snug_safetensors files;
    float value;
    assert_ok(s, snug_safetensors_open(
                     s->ctx, NULL,
                     write_raw(s, "t.safetensors",
                               "{\"i\":" T("I64", "[1]", "0", "8") ",\"f4\":" T("F4", "[6]", "8", "11") ",\"new\":" T(
                                   "A_TYPE_OF_TOMORROW", "[2]", "11", "16") ",\"__metadata__\":{\"format\":\"pt\"}}",
                               16),
                     &files));
    assert_int_equal(files.count, 3);
    for (size_t i = 0; i < 3; i++) {
        assert_false(files.tensors[i].readable);
        assert_fails(s, snug_safetensors_read(s->ctx, &files, &files.tensors[i], 0, 1, &value), SNUG_E_INPUT,
                     "snug reads F32, F16 and BF16");
    }
    assert_string_equal(files.tensors[1].type_name, "I64");
    uint8_t byte;
    assert_fails(s, snug_safetensors_read_stored(s->ctx, &files, &files.tensors[1], 0, 1, &byte), SNUG_E_INPUT,
                 "has type I64, which snug does not support");
    snug_safetensors_close(&files);
}

FIXTURE_TEST(wrong_headers) {
    refuses(s, "{\"a\":" T("F32", "[2]", "0", "8") "}", 7, "is truncated: tensor a ends at byte ");
    refuses(s, "{\"a\":" T("F32", "[2]", "0", "8") "}", 9, "its tensors end at byte ");
    refuses(s, "{\"a\":" T("F32", "[2]", "0", "4") "}", 4, "2 elements of F32 do not take the 4 bytes given");
    refuses(s, "{\"a\":" T("F32", "[2]", "8", "0") "}", 8, "tensor a: has an end before its beginning");
    refuses(s, "{\"a\":" T("F32", "[2]", "-8", "0") "}", 8, "tensor a: has an end before its beginning");
    refuses(s, "{\"a\":" T("F32", "[-2]", "0", "8") "}", 8, "tensor a: has an impossible shape");
    refuses(s, "{\"a\":" T("F32", "[2.0]", "0", "8") "}", 8, "tensor a: has an impossible shape");
    /* products and sums that would wrap around to a small value */
    refuses(s, "{\"a\":" T("F32", "[4294967296,4294967296]", "0", "0") "}", 0, "tensor a: has an impossible shape");
    refuses(s, "{\"a\":" T("F32", "[4611686018427387904]", "0", "0") "}", 0, "do not take the 0 bytes given");
    refuses(s, "{\"a\":" T("U8", "[9223372036854775807]", "0", "9223372036854775807") "}", 8, "do not take");
    refuses(s, "{\"a\":" T("NEW", "[1]", "0", "9223372036854775807") "}", 8, "is truncated: tensor a");
    refuses(s, "{\"a\":" T("NEW", "[1]", "0", "9223372036854775808") "}", 8, "two \"data_offsets\"");
    refuses(s, "{\"a\":" T("F4", "[3]", "0", "1") "}", 1, "do not take");
    refuses(s, "{\"a\":" T("U8", "[1,1,1,1,1,1,1,1,1]", "0", "1") "}", 1, "has over 8 dimensions");
    refuses(s, "{\"a\":" T("U8", "[4]", "0", "4") ",\"b\":" T("U8", "[4]", "2", "6") "}", 6, "a and b overlap");
    refuses(s, "{\"b\":" T("U8", "[4]", "2", "6") ",\"a\":" T("U8", "[4]", "0", "4") "}", 6, "a and b overlap");
    refuses(s, "{\"a\":" T("U8", "[4]", "0", "4") ",\"b\":" T("U8", "[2]", "5", "7") "}", 7,
            "1 bytes before tensor b belong to none");
    refuses(s, "{\"a\":" T("U8", "[1]", "0", "1") ",\"a\":" T("U8", "[1]", "1", "2") "}", 2,
            "tensor a is listed twice");
    refuses(s, "{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1,
            "tensor a: duplicate");
    refuses(s, "{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", 8, "tensor a: needs");
    refuses(s, "{\"a\":{\"dtype\":7,\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "tensor a: needs");
    refuses(s, "{\"a\":{\"dtype\":\"F32\",\"shape\":2,\"data_offsets\":[0,8]}}", 8, "tensor a: needs");
    refuses(s, "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8,8]}}", 8, "tensor a: needs");
    refuses(s, "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,\"8\"]}}", 8, "tensor a: needs");
    refuses(s, "{\"a\":[]}", 8, "tensor a: needs");
    refuses(s, "{\"a\":", 8, "its header is not valid");
    refuses(s, "[]", 8, "is not a safetensors file");
    refuses(s, "", 8, "is not a safetensors file");
}

/* Text that is no JSON, or not in the format's form, with the position in the message. */
FIXTURE_TEST(malformed_headers) {
#define A "\"a\":" T("U8", "[1]", "0", "1")
#define M(value) "{\"__metadata__\":" value "," A "}"
    static const struct {
        const char *header, *sentence;
    } cases[] = {
        {"{" A, "',' or '}' expected at its byte 52"},
        {"{" A "} x", "the end of the header expected at its byte 54"},
        {"{" A "}}", "the end of the header expected at its byte 53"},
        {"{" A "]", "',' or '}' expected at its byte 52"},
        {"{" A ",}", "a string expected at its byte 53"},
        {"{," A "}", "a string expected at its byte 1"},
        {"{" A " " A "}", "',' or '}' expected at its byte 53"},
        {"{\"a\" {}}", "':' expected at its byte 5"},
        {"{\"a\":}", "a value expected at its byte 5"},
        {"{\"a\":,}", "tensor a: unexpected token near ','"},
        {"{\"a\":[}}", "tensor a: unexpected token near '}'"},
        {"{\"a\":[[]", "the end of the value expected at its byte 8"},
        {"{\"a\":\"b", "the end of the string expected at its byte 5"},
        {"{\"a\":\"b\\", "the end of the string expected at its byte 5"},
        {"{\"a\":\"b\"}", "tensor a: needs"},
        {"{\"a\":nul}", "tensor a: invalid token near 'nul'"},
        {"{\"a\\q\":1}", "tensor a\\q: invalid escape"},
        {"{\"\xff\":1}", "not UTF-8 at its byte 2"},
        {M("7"), "an object of strings as \"__metadata__\" expected at its byte 16"},
        {M("{\"a\":7}"), "a string expected at its byte 21"},
        {M("{\"a\" \"b\"}"), "':' expected at its byte 21"},
        {M("{\"a\":\"b\" \"c\":\"d\"}"), "',' or '}' expected at its byte 25"},
        {M("{\"a\":\"b\",}"), "a string expected at its byte 25"},
        {M("{\"a\":\"\\q\"}"), "a character that JSON allows expected at its byte 23"},
        {M("{\"a\":\"\\u12g4\"}"), "a character that JSON allows expected at its byte 23"},
        {M("{\"a\":\"\n\"}"), "a character that JSON allows expected at its byte 22"},
        {M("{"), "a string expected at its byte"},
        {M("{},\"__metadata__\":{}"), "\"__metadata__\" is listed twice"},
        {M("{},\"__metadat\\u0061__\":0"), "\"__metadata__\" is listed twice"},
    };
    struct snug_safetensors files;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) refuses(s, cases[i].header, 1, cases[i].sentence);
    static const char *const accepted[] = {
        M("null"),
        M("{}"),
        M("{ }"),
        M(" { \"a\" : \"\\u00e9\\\"\\n\" , \"b\":\"\" } "),
        "{\"__metadat\\u0061__\":0," A "}",
        "{ " A " } \n",
    };
    for (size_t i = 0; i < sizeof accepted / sizeof *accepted; i++) {
        assert_ok(s, snug_safetensors_open(s->ctx, NULL, write_raw(s, "a.safetensors", accepted[i], 1), &files));
        assert_int_equal(files.count, 1);
        assert_string_equal(files.tensors[0].name, "a");
        snug_safetensors_close(&files);
    }
}

/* Messages cut a long name between characters. */
FIXTURE_TEST(long_name) {
    enum { NAME = 70000 };
    struct snug_safetensors files;
    char *bytes = calloc(1, 8 + NAME + 8), shown[256] = "tensor a";
    assert_non_null(bytes);
    strcpy(bytes + 8, "{\"a");
    for (int i = 0; i < NAME; i++) bytes[11 + i] = "\xC3\xA9"[i % 2];
    strcpy(bytes + 11 + NAME, "\":0}");
    const uint64_t length = NAME + 7;
    memcpy(bytes, &length, sizeof length);
    for (int i = 0; i < 49; i++) strcat(shown, "\xC3\xA9");
    strcat(shown, ": its entry of 70005 bytes is longer than any tensor needs");
    scratch_write(s, "a.safetensors", bytes, 8 + length);
    assert_fails(s, snug_safetensors_open(s->ctx, NULL, s->path, &files), SNUG_E_INPUT, shown);
    free(bytes);
}

/* Opens a file in a process of its own: returns its peak memory, and the message. */
static int64_t peak_of_opening(struct scratch *s, const char *path, char *message, size_t size) {
    int channel[2], status;
    struct rusage usage;
    assert_int_equal(pipe(channel), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct snug_safetensors files;
        const bool fine = snug_safetensors_open(s->ctx, NULL, path, &files) == SNUG_OK;
        char text[512];
        const int length = fine ? snprintf(text, sizeof text, "%zu tensors", files.count)
                                : snprintf(text, sizeof text, "%s", snug_error_message(s->ctx));
        const size_t bytes = (size_t)length < sizeof text ? (size_t)length : sizeof text - 1;
        _exit(write(channel[1], text, bytes) != (ssize_t)bytes);
    }
    close(channel[1]);
    const ssize_t got = read(channel[0], message, size - 1);
    close(channel[0]);
    message[got > 0 ? got : 0] = '\0';
    while (wait4(child, &status, 0, &usage) < 0) assert_int_equal(errno, EINTR);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    return (int64_t)usage.ru_maxrss * 1024;
}

static void put_many(FILE *file, const char *piece, size_t bytes) {
    char block[1 << 12];
    const size_t size = strlen(piece), most = sizeof block / size;
    for (size_t i = 0; i < most; i++) memcpy(block + i * size, piece, size);
    for (size_t left = bytes / size, count; left > 0; left -= count) {
        count = left < most ? left : most;
        assert_int_equal(fwrite(block, size, count, file), count);
    }
}

/* The longest headers take a small multiple of their size, whatever they contain. */
FIXTURE_TEST(long_headers) {
    const int most = is_long() ? 90000000 : 9000000; /* bytes */
    static const struct {
        const char *before, *piece, *middle, *other, *after; /* half of each piece; a piece with % is numbered */
        const char *said;
    } cases[] = {
        {"{\"a\":", "[", "", "[", "", "the end of the value expected"},
        {"{\"a\":", "[", "", "]", "}", "tensor a: its entry of"},
        {"{\"a\":[", "0,", "", "{},", "0]}", "tensor a: its entry of"},
        {"{", "\"\":0,", "", "\"\":0,", "}", "tensor : needs"},
        {"{", "\"\":{},", "", "\"\":[],", "}", "tensor : needs"},
        {"{\"", "a", "", "\xC3\xA9", "\":0}", "aaa: its entry of"},
        {"{\"", "\xC3\xA9", "a", "a", "", "the end of the string expected"},
        {"{\"__metadata__\":{\"", "a", "\":\"", "b", "\"}}", "0 tensors"},
        {"{\"__metadata__\":{\"\":\"\"", ",\"\":\"\"", "", ",\"\":\"\"", "}}", "0 tensors"},
        {"{", " ", "", "\n", "}", "0 tensors"},
        {"{", "%", "", "", "}", " tensors"},
    };
    char message[512];
    const char *path = write_raw(s, "a.safetensors", "{}", 0);
    const int64_t before = peak_of_opening(s, path, message, sizeof message);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        FILE *file = fopen(scratch_path(s, "a.safetensors"), "w");
        assert_non_null(file);
        assert_int_equal(fwrite("12345678", 1, 8, file), 8);
        fputs(cases[i].before, file);
        if (*cases[i].piece == '%') {
            for (int k = 0; k < most / 60; k++)
                fprintf(file, "%s\"%07x\":" T("U8", "[0]", "0", "0"), k ? "," : "", (unsigned)k * 7919u % 0xfffffffu);
        } else {
            put_many(file, cases[i].piece, (size_t)most / 2);
            fputs(cases[i].middle, file);
            put_many(file, cases[i].other, (size_t)most / 2);
        }
        fputs(cases[i].after, file);
        const uint64_t length = (uint64_t)ftell(file) - 8;
        rewind(file);
        assert_int_equal(fwrite(&length, sizeof length, 1, file), 1);
        assert_int_equal(fclose(file), 0);
        const int64_t peak = peak_of_opening(s, s->path, message, sizeof message) - before;
        print_message("header %zu: %lld bytes, %.1f times its size: %.60s\n", i, (long long)length,
                      (double)peak / (double)length, message);
        assert_contains(message, cases[i].said);
        if (!SANITIZED) assert_true(peak < 5 * (int64_t)length);
    }
}

FIXTURE_TEST(other_files) {
    struct snug_safetensors files;
    static const struct {
        const char *name, *bytes;
        size_t size;
        const char *sentence;
    } cases[] = {
        {"model.safetensors", "PK\3\4\0\0\x08\x08\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x10\0\0\0archive/data.pkl", 46,
         "is a pickled PyTorch file"},
        {"model.safetensors", "PK\3\4\0\0\x08\x08\0\0\0\0", 12, "is a zip archive"},
        {"pytorch_model.bin", "PK\3\4\0\0\x08\x08\0\0\0\0", 12, "is a pickled PyTorch file"},
        {"model.safetensors", "\x80\2\x8a\nl\xfc\x9c\x46\xf9 j", 11, "save_file("},
        {"pytorch_model.bin", "", 0, "is a pickled PyTorch file"},
        {"model.pt", "?", 1, "is a pickled PyTorch file"},
        {"model.pth", "?", 1, "is a pickled PyTorch file"},
        {"a.safetensors", "\x80\1......", 8, "it has 8 bytes"},
        {"a.safetensors", "\x80\6......", 8, "it has 8 bytes"},
        {"a.safetensors", "version https://git-lfs.github.com/spec/v1\n", 43, "run \"git lfs pull\""},
        {"a.safetensors", "", 0, "it has 0 bytes"},
        {"a.safetensors", "\2\0\0\0\0\0\0", 7, "it has 7 bytes"},
        {"a.safetensors", "\3\0\0\0\0\0\0\0{}", 10, "its header would take 3"},
        {"a.safetensors", "\0\0\0\0\0\0\0\0{}", 10, "its header would take 0"},
        {"a.safetensors", "\xf0\xff\xff\xff\xff\xff\xff\xff{}", 10, "its header would take 18446744073709551600"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *path = scratch_write(s, cases[i].name, cases[i].bytes, cases[i].size);
        assert_fails(s, snug_safetensors_open(s->ctx, NULL, path, &files), SNUG_E_INPUT, cases[i].sentence);
    }
    char here[1024]; /* names without a folder, and shorter than any end */
    assert_non_null(getcwd(here, sizeof here));
    assert_int_equal(chdir(s->folder), 0);
    const snug_status pickled = snug_safetensors_open(s->ctx, NULL, "model.pt", &files);
    assert_fails(s, pickled, SNUG_E_INPUT, "save_file(w, \"model.safetensors\"");
    assert_fails(s, snug_safetensors_open(s->ctx, NULL, scratch_write(s, "m", "?", 1) + strlen(s->folder) + 1, &files),
                 SNUG_E_INPUT, "m is not a safetensors file");
    assert_int_equal(chdir(here), 0);
    /* a header above the format's limit, in a file that is long enough for it (with holes, so that it takes no space)
     */
    scratch_write(s, "long.safetensors", "\1\xe1\xf5\5\0\0\0\0{}", 10); /* 100,000,001 */
    assert_int_equal(truncate(s->path, 200000000), 0);
    assert_fails(s, snug_safetensors_open(s->ctx, NULL, s->path, &files), SNUG_E_INPUT, "would take 100000001");
    assert_fails(s, snug_safetensors_open(s->ctx, NULL, scratch_path(s, "none"), &files), SNUG_E_IO,
                 "none: No such file");
    assert_fails(s, snug_safetensors_open(s->ctx, NULL, s->folder, &files), SNUG_E_INPUT, "not a regular file");
}

static snug_status open_index(struct scratch *s, const char *index, struct snug_safetensors *files) {
    scratch_write(s, "model.safetensors.index.json", index, strlen(index));
    return snug_safetensors_open(s->ctx, NULL, s->path, files);
}

FIXTURE_TEST(shards) {
    struct snug_safetensors files;
    float value;
    write_raw(s, "m-1.safetensors", "{\"b\":" T("F32", "[1]", "0", "4") ",\"a\":" T("F32", "[1]", "4", "8") "}", 8);
    write_raw(s, "m-2.safetensors", "{\"c\":" T("F32", "[1]", "0", "4") "}", 4);
    write_raw(s, "m-3.safetensors", "{\"a\":" T("F32", "[1]", "0", "4") "}", 4);
    assert_ok(s, open_index(s,
                            "{\"metadata\":{\"total_size\":12},\"weight_map\":{\"c\":\"m-2.safetensors\","
                            "\"a\":\"m-1.safetensors\",\"b\":\"m-1.safetensors\"}}",
                            &files));
    assert_int_equal(files.count, 3);
    assert_int_equal(files.file_count, 2);
    for (size_t i = 0; i < 3; i++) {
        static const unsigned char expected[3][4] = {{4, 5, 6, 7}, {0, 1, 2, 3}, {0, 1, 2, 3}};
        assert_string_equal(files.tensors[i].name, ((const char *[]){"a", "b", "c"}[i]));
        assert_ok(s, snug_safetensors_read(s->ctx, &files, &files.tensors[i], 0, 1, &value));
        assert_memory_equal(&value, expected[i], 4);
    }
    snug_safetensors_close(&files);

    static const struct {
        const char *index;
        snug_status status;
        const char *sentence;
    } cases[] = {
        {"{}", SNUG_E_INPUT, "needs \"weight_map\""},
        {"{\"weight_map\":{}}", SNUG_E_INPUT, "needs \"weight_map\""},
        {"{\"weight_map\":[1]}", SNUG_E_INPUT, "needs \"weight_map\""},
        {"{\"weight_map\":{\"a\":\"../m-1.safetensors\"}}", SNUG_E_INPUT, "in the same folder"},
        {"{\"weight_map\":{\"a\":\"/etc/passwd\",\"b\":\"m-1.safetensors\"}}", SNUG_E_INPUT, "in the same folder"},
        {"{\"weight_map\":{\"a\":\"..\"}}", SNUG_E_INPUT, "in the same folder"},
        {"{\"weight_map\":{\"a\":\"\"}}", SNUG_E_INPUT, "in the same folder"},
        {"{\"weight_map\":{\"a\":7}}", SNUG_E_INPUT, "in the same folder"},
        {"{\"weight_map\":{\"a\":\"m-9.safetensors\"}}", SNUG_E_IO, "m-9.safetensors: No such file"},
        {"{\"weight_map\":{\"z\":\"m-1.safetensors\"}}", SNUG_E_INPUT, "tensor z is not in its shard m-1.safetensors"},
        {"{\"weight_map\":{\"a\":\"m-2.safetensors\",\"b\":\"m-1.safetensors\"}}", SNUG_E_INPUT,
         "tensor a is not in its"},
        {"{\"weight_map\":{\"b\":\"m-1.safetensors\",\"a\":\"m-3.safetensors\"}}", SNUG_E_INPUT, "tensor a is in "},
        {"{\"weight_map\":{\"a\":", SNUG_E_INPUT, "not valid JSON"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_fails(s, open_index(s, cases[i].index, &files), cases[i].status, cases[i].sentence);
}

/* A file truncated at any byte is refused; a file with any one byte changed is refused or read, within its bounds. */
FIXTURE_TEST(every_byte) {
    const float values[6] = {1, 2, 3, 4, 5, 6};
    const struct values_to_write sources[] = {
        {.name = "bert.a", .dtype = SNUG_F32, .dims = 2, .shape = {2, 2}, .data = values},
        {.name = "bert.b", .dtype = SNUG_BF16, .dims = 1, .shape = {4}, .data = values + 4}};
    char *bytes;
    size_t size;
    assert_ok(s, write_tensors(s->ctx, scratch_path(s, "a.safetensors"), sources, 2));
    assert_ok(s, snug_file_read(s->ctx, NULL, s->path, &bytes, &size));
    /* in place: truncating and writing for each case would wait for the disk each time */
    struct snug_safetensors files;
    FILE *file = fopen(scratch_path(s, "a.safetensors"), "r+");
    assert_non_null(file);
    for (size_t at = 0; at < size * 8; at++) {
        char flipped = bytes[at / 8] ^ (char)(1 << at % 8);
        assert_int_equal(pwrite(fileno(file), &flipped, 1, (off_t)(at / 8)), 1);
        snug_status status = snug_safetensors_open(s->ctx, NULL, s->path, &files);
        if (status != SNUG_OK) assert_fails(s, status, SNUG_E_INPUT, "a.safetensors"); /* and files is empty */
        for (size_t i = 0; i < files.count; i++) {
            float found[16];
            assert_true(files.tensors[i].count <= 16);
            if (files.tensors[i].readable)
                assert_ok(s,
                          snug_safetensors_read(s->ctx, &files, &files.tensors[i], 0, files.tensors[i].count, found));
        }
        snug_safetensors_close(&files);
        assert_int_equal(pwrite(fileno(file), &bytes[at / 8], 1, (off_t)(at / 8)), 1);
    }
    assert_ok(s, snug_safetensors_open(s->ctx, NULL, s->path, &files));
    snug_safetensors_close(&files);
    for (size_t cut = size; cut-- > 0;) {
        assert_int_equal(ftruncate(fileno(file), (off_t)cut), 0);
        assert_fails(s, snug_safetensors_open(s->ctx, NULL, s->path, &files), SNUG_E_INPUT, "a.safetensors");
    }
    fclose(file);
    free(bytes);
}

TEST_MAIN(NULL, NULL)
