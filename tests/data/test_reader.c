/* SPDX-License-Identifier: Apache-2.0 */
/* The readers of CSV, TSV, JSON Lines and plain text, and the repair of UTF-8. */
#include <zlib.h>

#include "core/utf8.h"
#include "core/utf8_repair.h"
#include "data/data_file.h"
#include "data/reader.h"
#include "reader_fixture.h"
#include "tokenizer/tokenizer.h"

#define FIXTURE struct scratch *s, scratch_setup, scratch_teardown

FIXTURE_TEST(csv_rows) {
    reads(s, "a.csv", "label,text\n1,good\n0,bad\n", "label~text\n0@2 1~good\n1@3 0~bad");
    reads(s, "a.csv", "label,text\r\n1,good\r\n0,bad", "label~text\n0@2 1~good\n1@3 0~bad");
    reads(s, "a.csv",
          "\xEF\xBB\xBF"
          "a,b\n,\n",
          "a~b\n0@2 ~");                                       /* byte order mark; empty fields */
    reads(s, "a.CSV", "a\nx\n\n\r\ny\n\n", "a\n0@2 x\n1@5 y"); /* empty lines are no rows */
    reads(s, "a.csv", "a\n\"\"\n", "a\n0@2 ");                 /* but an empty quoted field is */
    reads(s, "a.csv", "a,b\n", "a~b");
    reads(s, "a.csv", "a,b", "a~b");
    reads(s, "a.csv", "a,b\n1,x\r", "a~b\n0@2 1~x");
}

FIXTURE_TEST(csv_quotes) {
    reads(s, "a.csv", "\"a\",\"b,c\"\n\"1\n2\r\n3\",\"say \"\"hi\"\"\"\nx,\"\"\"\"\n",
          "a~b,c\n0@2 1\n2\r\n3~say \"hi\"\n1@5 x~\"");
    reads(s, "a.csv", "a,b\n5\" pipe,he said \"so\"\n", "a~b\n0@2 5\" pipe~he said \"so\"");
    reads(s, "a.csv", "a,b\n\"x\",\"y\"", "a~b\n0@2 x~y");
    refuses(s, "a.csv", "a,b\n1,2\n3,\"open\nmore\nmore", "a.csv:3: a quote that opens here is never closed");
    refuses(s, "a.csv", "a,b\n\"1\n2\",\"open\nmore", "a.csv:3: a quote that opens here is never closed");
    refuses(s, "a.csv", "a,b\n\"1\n2\"x,3\n", "a.csv:3: text follows a closing quote");
    refuses(s, "a.csv", "a,b\n1,x\ry\n", "a.csv:2: a carriage return within a field");
}

/* Columns without a name, or with that of another one, have the names that pandas gives them. */
FIXTURE_TEST(headers) {
    reads(s, "a.csv", ",text,label\n0,good,1\n", "Unnamed: 0~text~label\n0@2 0~good~1");
    assert_int_equal(s->log_count, 0);
    reads(s, "a.csv", "a,,c,\n1,2,3,4\n", "a~Unnamed: 1~c~Unnamed: 3\n0@2 1~2~3~4");
    reads(s, "a.csv", "Unnamed: 1,\n1,2\n", "Unnamed: 1~Unnamed: 1.1\n0@2 1~2");
    reads(s, "a.csv", "a,a,b,a,a.1\n1,2,3,4,5\n", "a~a.1~b~a.2~a.1.1\n0@2 1~2~3~4~5");
    assert_contains(s->log, "a.csv:1: two columns are called \"a.1\": the second is \"a.1.1\" here");
    reads(s, "a.tsv", "a\ta\n1\t2\n", "a~a.1\n0@2 1~2");
    assert_contains(s->log, "a.tsv:1: two columns are called \"a\": the second is \"a.1\" here");
}

FIXTURE_TEST(csv_refusals) {
    refuses(s, "a.csv", "a,b\n1,2\n1,2,3\n", "a.csv:3: row has 3 fields, the header has 2");
    refuses(s, "a.csv", "a,b\n\"x\ny\",1\n1\n", "a.csv:4: row has 1 field, the header has 2");
    refuses(s, "a.csv", "", "is empty");
    refuses(s, "a.csv", "\xEF\xBB\xBF", "is empty");
    refuses(s, "a.csv", "\n\n", "is empty");
    char found[64];
    snug_status status = dump(s, scratch_write(s, "n.csv", "a,b\n1,2\n3,\0\n", 13), true, found, sizeof found);
    assert_fails(s, status, SNUG_E_INPUT, "n.csv:3: a NUL byte");
    status = dump(s,
                  scratch_write(s, "n.csv",
                                "\xFF\xFE"
                                "a\0\n\0",
                                6),
                  true, found, sizeof found);
    assert_fails(s, status, SNUG_E_INPUT, "UTF-16");
}

FIXTURE_TEST(other_refusals) {
    char found[64];
    static const char *const missing[] = {"none.csv", "none.feather", "none.plain", "none"};
    for (size_t i = 0; i < sizeof missing / sizeof *missing; i++)
        assert_fails(s, dump(s, scratch_path(s, missing[i]), true, found, sizeof found), SNUG_E_IO, missing[i]);
    assert_ok(s, snug_folder_create(s->ctx, scratch_path(s, "folder.csv")));
    assert_fails(s, dump(s, s->path, true, found, sizeof found), SNUG_E_INPUT, "folder.csv");
}

FIXTURE_TEST(tsv_rows) {
    reads(s, "a.tsv", "sentence\tlabel\n\"x\" y, z\t1\r\n\t0", "sentence~label\n0@2 \"x\" y, z~1\n1@3 ~0");
    refuses(s, "a.tsv", "a\tb\n1\t2\t3\n", "a.tsv:2: row has 3 fields, the header has 2");
    refuses(s, "a.tsv", "", "is empty");
}

FIXTURE_TEST(text_rows) {
    reads(s, "a.txt", "one, \"two\"\r\n\nthree", "text\n0@1 one, \"two\"\n1@2 \n2@3 three");
    reads(s, "a.txt", "\xEF\xBB\xBFone\n", "text\n0@1 one");
    refuses(s, "a.txt", "", "is empty");
}

/* What pandas' to_csv(sep="\\t") writes, by quoting: only where needed, or every string. */
FIXTURE_TEST(tsv_quotes) {
    reads(s, "a.tsv", "text\tlabel\n\"say \"\"hi\"\"\"\t1\n\"\"\"\"\t0\n", "text~label\n0@2 say \"hi\"~1\n1@3 \"~0");
    assert_contains(s->log, "2 row(s), first in line 2, have quoted fields");
    reads(s, "a.tsv", "a\tb\n\"x\"\"\"\t\"\"\"y\"\n", "a~b\n0@2 x\"~\"y");
    assert_contains(s->log, "1 row(s), first in line 2, have quoted fields");
    reads(s, "a.tsv", "text\tlabel\n\"a\r\nb\"\t1\r\n", "text~label\n0@2 a\r\nb~1");
    reads(s, "a.tsv", "text\tlabel\n\"a\tb\"\t1\nplain\t0\n", "text~label\n0@2 a\tb~1\n1@3 plain~0");
    reads(s, "a.tsv", "text\tlabel\n\"a\nb\r\n\"\"c\"\t1\r\nplain\t0\n", "text~label\n0@2 a\nb\r\n\"c~1\n1@5 plain~0");
    reads(s, "a.tsv", "text\tlabel\n\"a\tb\"\t1", "text~label\n0@2 a\tb~1");
    reads(s, "a.tsv", "\"text\"\t\"label\"\n\"x\"\t\"a\"\n\"one\ntwo\"\t3\n", "text~label\n0@2 x~a\n1@3 one\ntwo~3");
    /* GLUE's quotes are text. */
    s->log_count = 0;
    reads(s, "a.tsv", "text\tlabel\n\"all\"\t1\n\"open\t0\n\"\"all\"\"\t1\n\"\t1\nx\"\"y\t1\n\"x\"\"\t1\n",
          "text~label\n0@2 \"all\"~1\n1@3 \"open~0\n2@4 \"\"all\"\"~1\n3@5 \"~1\n4@6 x\"\"y~1\n5@7 \"x\"\"~1");
    assert_int_equal(s->log_count, 0);
    reads(s, "a.tsv", "\"a\"\tb\n1\t2\n", "\"a\"~b\n0@2 1~2");
    refuses(s, "a.tsv", "a\tb\n\"1\t2\t3\n", "a.tsv:2: row has 3 fields, the header has 2");
    refuses(s, "a.tsv", "a\tb\n\"1\"\t2\t3\n", "a.tsv:2: row has 3 fields, the header has 2");
    refuses(s, "a.tsv", "a\tb\n\"1\t2\"x\t3\n", "a.tsv:2: row has 3 fields, the header has 2");
    refuses(s, "a.tsv", "\"a\"\t\"b\"\n\"1\t2\n", "a.tsv:2: a quote that opens here is never closed");
}

FIXTURE_TEST(csv_semicolons) {
    reads(s, "a.csv", "text;label\na, b;1\n\"x;y\";0\n", "text~label\n0@2 a, b~1\n1@3 x;y~0");
    assert_contains(s->log, "its fields are separated by ;");
    reads(s, "a.csv", "\"a,b\";c\n1;2\n", "a,b~c\n0@2 1~2");
    reads(s, "a.csv", "a;b,c\n1;2,3\n", "a;b~c\n0@2 1;2~3");
    reads(s, "a.csv", "text\nx;y\n", "text\n0@2 x;y");
    refuses(s, "a.csv", "a;b\n1;2;3\n", "a.csv:2: row has 3 fields, the header has 2; quote a field");
}

/* ---- compressed files, and formats that the name does not tell ---- */

static size_t compress_text(unsigned char *out, size_t size, const char *text, size_t length) {
    z_stream stream = {
        .next_in = (unsigned char *)text, .avail_in = (uInt)length, .next_out = out, .avail_out = (uInt)size};
    assert_int_equal(deflateInit2(&stream, 9, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    assert_int_equal(deflate(&stream, Z_FINISH), Z_STREAM_END);
    deflateEnd(&stream);
    return size - stream.avail_out;
}

static void refuses_bytes(struct scratch *s, const char *name, const void *data, size_t size, const char *sentence) {
    char found[256];
    assert_fails(s, dump(s, scratch_write(s, name, data, size), true, found, sizeof found), SNUG_E_INPUT, sentence);
}

FIXTURE_TEST(gzip_rows) {
    static const char first[] = "text,label\ngood,1\n", second[] = "bad,0\n";
    unsigned char data[1024] = {0};
    char found[256];
    size_t one = compress_text(data, sizeof data, first, sizeof first - 1);
    size_t both = one + compress_text(data + one, sizeof data - one, second, sizeof second - 1);
    static const char *const names[] = {"a.csv.gz", "a.CSV.GZ", "a.csv"};
    for (size_t i = 0; i < 3; i++) {
        assert_ok(s, dump(s, scratch_write(s, names[i], data, one), true, found, sizeof found));
        assert_string_equal(found, "text~label\n0@2 good~1");
    }
    assert_ok(s, dump(s, scratch_write(s, "a.csv.gz", data, both), true, found, sizeof found));
    assert_string_equal(found, "text~label\n0@2 good~1\n1@3 bad~0");
    assert_ok(s, dump(s, scratch_write(s, "a.csv.gz", data, both + 100), true, found, sizeof found)); /* zeros */
    assert_string_equal(found, "text~label\n0@2 good~1\n1@3 bad~0");
    refuses_bytes(s, "a.csv.gz", data, one - 9, "ends within its compressed data");
    refuses_bytes(s, "a.csv.gz", data, both - 1, "ends within its compressed data");
    refuses_bytes(s, "a.csv.gz", data, 2, "ends within its compressed data");
    data[one - 8] ^= 1; /* the checksum */
    refuses_bytes(s, "a.csv.gz", data, one, "its compressed data is damaged");
    data[2] = 99; /* the method */
    refuses_bytes(s, "a.csv.gz", data, one, "its compressed data is damaged");
    reads(s, "plain.csv.gz", "a,b\n1,2\n", "a~b\n0@2 1~2"); /* the content decides */
    reads(s, "a.csv", "\x1f", "\x1f");                      /* one byte: no header of gzip */
    reads(s, "a.csv", "\x1f,a\n1,2\n", "\x1f~a\n0@2 1~2");
}

/* The first bytes, which are read to see whether the file is compressed, are returned in parts. */
FIXTURE_TEST(data_parts) {
    struct snug_data_file *file;
    char part[4] = "";
    int fd;
    size_t got;
    const char *path = scratch_write(s, "a.csv", "abc", 3);
    assert_ok(s, snug_data_open(s->ctx, path, &fd));
    assert_ok(s, snug_data_file_create(s->ctx, path, fd, &file));
    assert_ok(s, snug_data_file_read(file, part, 2, &got));
    assert_int_equal(got, 2);
    assert_ok(s, snug_data_file_read(file, part + 2, 2, &got));
    assert_int_equal(got, 1);
    assert_string_equal(part, "abc");
    snug_data_file_free(file);
    close(fd);
}

/* Much more than a buffer, in both forms. */
FIXTURE_TEST(gzip_large) {
    enum { ROWS = 40000 };
    char *text = malloc(ROWS * 16), *end = text + sprintf(text, "text\n");
    unsigned char *data = malloc(ROWS * 16);
    for (unsigned i = 0; i < ROWS; i++) end += sprintf(end, "%08x\n", i * 2654435761u);
    struct snug_reader *reader;
    struct snug_row row;
    int64_t size, position = 0;
    const size_t compressed = compress_text(data, ROWS * 16, text, (size_t)(end - text));
    assert_true(compressed > 100000);
    assert_ok(s, snug_reader_open(s->ctx, scratch_write(s, "a.csv.gz", data, compressed), &strictly, &reader));
    for (unsigned i = 0; i < ROWS; i++) {
        char expected[16];
        sprintf(expected, "%08x", i * 2654435761u);
        assert_ok(s, snug_reader_next(reader, &row));
        assert_string_equal(row.fields[0].text, expected);
        assert_true(snug_reader_position(reader, &size) >= position);
        position = snug_reader_position(reader, &size);
    }
    assert_int_equal(snug_reader_next(reader, &row), SNUG_END);
    assert_int_equal(size, compressed);
    assert_int_equal(snug_reader_position(reader, &size), size);
    snug_reader_close(reader);
    free(text);
    free(data);
}

FIXTURE_TEST(given_formats) {
    static const struct {
        const char *name, *format, *content, *expected;
    } cases[] = {
        {"data", "csv", "a,b\n1,2\n", "a~b\n0@2 1~2"},     {"a.b/data", "tsv", "a\tb\n1\t2\n", "a~b\n0@2 1~2"},
        {"data.csv", "jsonl", "{\"a\": 1}", "a\n0@1 I:1"}, {"data.gz", "json", "[{\"a\": 1}]", "a\n0@1 I:1"},
        {"data", "txt", "x,y\n", "text\n0@1 x,y"},
    };
    assert_ok(s, snug_folder_create(s->ctx, scratch_path(s, "a.b")));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char found[64];
        struct snug_reader *reader;
        const struct snug_reader_options options = {.format = cases[i].format};
        const char *path = scratch_write(s, cases[i].name, cases[i].content, strlen(cases[i].content));
        assert_ok(s, snug_reader_open(s->ctx, path, &options, &reader));
        assert_ok(s, dump_rows(reader, found, sizeof found));
        assert_string_equal(found, cases[i].expected);
        snug_reader_close(reader);
        if (strcmp(cases[i].name, "data.csv") == 0) continue;
        assert_fails(s, snug_reader_open(s->ctx, path, &strictly, &reader), SNUG_E_USAGE, "give --data_format csv");
    }
}

FIXTURE_TEST(malformed_utf8) {
    static const char *const files[] = {"a.csv", "a.tsv", "a.txt", "a.jsonl", "a.json"};
    static const char *const texts[] = {"text\nok\n\"a\nb\xE9,\"\nc\xFF\n", "text\nok\n\nb\xE9,\nc\xFF\n",
                                        "text\nok\n\nb\xE9,\nc\xFF\n",
                                        "{\"t\":\"ok\"}\n\n\n{\"t\":\"b\xE9,\"}\n{\"t\":\"c\xFF\"}",
                                        "[{\"t\":\"ok\"},\n{\n\n\"t\":\"b\xE9,\"},{\"t\":\"c\xFF\"}]"};
    for (size_t i = 0; i < 5; i++) {
        char found[256] = "";
        refuses(s, files[i], texts[i], ":4: malformed UTF-8 (byte 0xE9)");
        s->log_count = 0;
        assert_ok(s, dump(s, scratch_path(s, files[i]), false, found, sizeof found));
        assert_contains(found, "b\xEF\xBF\xBD,");
        assert_contains(found, "c\xEF\xBF\xBD");
        assert_contains(s->log, "malformed UTF-8 in 2 line(s), first in line 4");
        assert_int_equal(s->log_count, 1);
    }
}

/* Rows larger than the buffer, and rows that start at every offset in it. */
FIXTURE_TEST(rows_across_buffers) {
    static const char *const names[] = {"b.csv", "b.tsv", "b.txt", "b.jsonl", "b.json"};
    for (int kind = 0; kind < 5; kind++) {
        FILE *file = fopen(scratch_path(s, names[kind]), "w");
        fputs(kind < 2 ? "text\n" : kind == 4 ? "[" : "", file);
        for (int i = 0; i < 600; i++) {
            int size = i == 300 ? 200000 : i;
            char *text = malloc((size_t)size + 1);
            memset(text, 'a' + i % 26, (size_t)size);
            text[size] = '\0';
            static const char *const formats[] = {"\"%s\"\"\n\"\n", "%s.\n", "%s\r\n", "{\"text\": \"%s\\\"}\"}\n",
                                                  "{\"text\":\n\"%s\\\"}\"}"};
            if (kind == 4 && i) fputc(',', file);
            fprintf(file, formats[kind], text); // NOLINT: the formats are literals above
            free(text);
        }
        if (kind == 4) fputc(']', file);
        fclose(file);
        struct snug_reader *reader;
        struct snug_row row;
        assert_ok(s, snug_reader_open(s->ctx, s->path, &strictly, &reader));
        for (int i = 0; i < 600; i++) {
            assert_ok(s, snug_reader_next(reader, &row));
            size_t size = i == 300 ? 200000 : (size_t)i;
            static const size_t more[] = {2, 1, 0, 2, 2};
            assert_int_equal(row.fields[0].length, size + more[kind]);
            for (size_t at = 0; at < size; at++) assert_true(row.fields[0].text[at] == 'a' + i % 26);
        }
        assert_int_equal(snug_reader_next(reader, &row), SNUG_END);
        snug_reader_close(reader);
    }
}

/* A file truncated at any byte gives rows or an error, never a crash. */
FIXTURE_TEST(truncations) {
    static const char csv[] = "\xEF\xBB\xBF"
                              "a,b\r\n\"x\n\"\"y\"\"\",1\r\n\xC3\xA9\xF0\x9F\x98\x80,2\r\n";
    static const char json[] = "[{\"a\": \"\xC3\xA9\\\"\", \"b\": [1, \"x\"]},\n {\"a\": 2.5, \"c\": null}]\n";
    char found[512];
    for (size_t size = 0; size <= sizeof csv; size++) {
        static const char *const names[] = {"t.csv", "t.tsv", "t.txt", "t.json"};
        for (int i = 0; i < 4; i++)
            for (int strict = 0; strict < 2; strict++) {
                const char *path = scratch_write(s, names[i], csv, size < sizeof csv ? size : sizeof csv - 1);
                if (dump(s, path, strict, found, sizeof found) != SNUG_OK)
                    assert_contains(snug_error_message(s->ctx), names[i]);
                snug_clear_error(s->ctx);
            }
    }
    for (size_t size = 0; size < sizeof json - 3; size++) {
        snug_status status = dump(s, scratch_write(s, "t.json", json, size), true, found, sizeof found);
        assert_fails(s, status, SNUG_E_INPUT, "t.json");
    }
    assert_ok(s, dump(s, scratch_write(s, "t.json", json, sizeof json - 1), true, found, sizeof found));
}

FIXTURE_TEST(endless_row) {
    FILE *file = fopen(scratch_path(s, "long.csv"), "w");
    char block[1 << 16];
    memset(block, 'x', sizeof block);
    fputs("a\n1\n\"", file);
    for (int i = 0; i < 4097; i++) assert_int_equal(fwrite(block, 1, sizeof block, file), sizeof block);
    fclose(file);
    char found[64];
    assert_fails(s, dump(s, s->path, true, found, sizeof found), SNUG_E_INPUT, "long.csv:3: a row of over 256 MiB");
}

static void repairs(struct scratch *s, const char *text, const char *expected) {
    char *found;
    size_t length;
    assert_ok(s, snug_utf8_repair(s->ctx, text, strlen(text), &found, &length));
    assert_string_equal(found, expected);
    assert_int_equal(length, strlen(expected));
    free(found);
}

#define R "\xEF\xBF\xBD"

FIXTURE_TEST(utf8_repair) {
    repairs(s, "", "");
    repairs(s, "plain \xC3\xA9 \xF0\x9F\x98\x80", "plain \xC3\xA9 \xF0\x9F\x98\x80");
    /* expected: the result of Python's bytes.decode("utf-8", errors="replace") */
    repairs(s, "caf\xE9 au lait", "caf" R " au lait");
    repairs(s, "\xC0\x80\xE0\x80\x80", R R R R R); /* overlong */
    repairs(s, "\xED\xA0\x80", R R R);             /* surrogate */
    repairs(s, "\xF4\x90\x80\x80\xF5", R R R R R); /* beyond U+10FFFF */
    repairs(s,
            "\xE2\x82"
            "a\xF0\x9F\x98"
            "b\xF0\x9F",
            R "a" R "b" R); /* incomplete characters */
    repairs(s, "\x80\xBF\xFF", R R R);
    assert_int_equal(snug_utf8_invalid("0123456789\xC3", 11), 10);
    assert_int_equal(snug_utf8_invalid("0123456789\xC3\xA9", 12), 12);
    assert_int_equal(snug_utf8_invalid("\xED\x9F\xBF\xEE\x80\x80\xF4\x8F\xBF\xBF", 10), 10);
}

/*
 * Every sequence of up to 4 of these 24 bytes against Python, by a hash (64-bit FNV-1a) over all results:
 *   import itertools; h = 0xcbf29ce484222325
 *   for n in range(1, 5):
 *       for t in itertools.product(B, repeat=n):
 *           for c in bytes(t).decode("utf-8", "replace").encode() + b"\n": h = (h ^ c) * 0x100000001b3 % 2**64
 */
FIXTURE_TEST(utf8_repair_all) {
    static const unsigned char bytes[24] = {0x41, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0, 0xc1, 0xc2, 0xdf,
                                            0xe0, 0xe1, 0xec, 0xed, 0xee, 0xef, 0xf0, 0xf1, 0xf3, 0xf4, 0xf5, 0xff};
    uint64_t hash = 0xcbf29ce484222325u;
    for (int n = 1, total = 24; n <= 4; n++, total *= 24)
        for (int number = 0; number < total; number++) {
            char text[4], *repaired;
            for (int i = n, rest = number; i-- > 0; rest /= 24) text[i] = (char)bytes[rest % 24];
            size_t length;
            assert_ok(s, snug_utf8_repair(s->ctx, text, (size_t)n, &repaired, &length));
            bool intact = length == (size_t)n && !memcmp(text, repaired, length);
            if (intact != (snug_utf8_invalid(text, (size_t)n) == (size_t)n)) fail_msg("sequence %d of %d", number, n);
            repaired[length] = '\n'; /* it replaces the NUL */
            for (size_t i = 0; i <= length; i++) hash = (hash ^ (unsigned char)repaired[i]) * 0x100000001b3u;
            free(repaired);
        }
    assert_int_equal(hash, 0x7d405799b4d0ad09u);
}

/* The same where rows are words. */
static void reads_words(struct scratch *scratch, const char *name, const char *content, const char *expected) {
    char found[4096] = "";
    const char *path = scratch_write(scratch, name, content, strlen(content));
    assert_ok(scratch, dump_as(scratch, path, true, true, found, sizeof found));
    assert_string_equal(found, expected);
}

static void refuses_words(struct scratch *scratch, const char *name, const char *content, snug_status expected,
                          const char *sentence) {
    char found[4096];
    const char *path = scratch_write(scratch, name, content, strlen(content));
    assert_fails(scratch, dump_as(scratch, path, true, true, found, sizeof found), expected, sentence);
}

FIXTURE_TEST(json_words) {
    reads_words(s, "w.jsonl",
                "{\"tokens\":[\"a|b\",\"\",\"c\"],\"ner_tags\":[\"O\",\"B-X\",\"O\"]}\n"
                "{\"tokens\":[],\"ner_tags\":[]}\n{\"tokens\":[\"x\"],\"ner_tags\":[3]}\n{\"tokens\":[\"x\"]}\n",
                "tokens~ner_tags\n0@1 W:a|b//c/~W:O/B-X/O/\n1@2 W:~W:\n2@3 W:x/~N:3/\n3@4 W:x/~M:");
    reads_words(s, "w.json", "[{\"id\":\"7\",\"tokens\":[\"x\"],\"tags\":[1, 2]}]",
                "id~tokens~tags\n0@1 7~W:x/~N:1/2/");
    reads_words(s, "w.jsonl", "{\"t\":[1.5]}\n{\"t\":[\"a\",1]}\n{\"t\":[1,null]}\n{\"t\":[[\"a\"]]}\n",
                "t\n0@1 O:a list of other values\n1@2 O:a list of other values\n2@3 O:a list of other values\n"
                "3@4 O:a list of other values");
}

FIXTURE_TEST(conll_rows) {
    const char *const rows = "column 1 of 2~column 2 of 2\n0@3 W:EU/rejects/~W:B-ORG/O/\n1@7 W:./~W:O/";
    reads_words(s, "w.conll", "-DOCSTART- -X- -X- O\n\nEU  B-ORG\n rejects O\n \t\n\n. O \n", rows);
    reads_words(s, "w.TXT", "-DOCSTART-\r\n\r\nEU\tB-ORG\r\nrejects \t O \r\n\r\n\r\n.\tO", rows);
    reads_words(s, "w.tsv", "\n\nEU\tB-ORG\nrejects\tO\n-DOCSTART- O\n\n.\tO\n\n\n", rows);
    reads_words(s, "w.conll", "EU\nrejects\n\n.\n",
                "column 1 of 1\n0@1 W:EU/rejects/\n1@4 W:./"); /* words for prediction have no tags */
    reads_words(s, "w.conll", "\n\n", "column 1 of 2~column 2 of 2");
    refuses_words(s, "w.conll", "", SNUG_E_INPUT, "is empty");
    refuses_words(s, "w.csv", "tokens,ner_tags\n", SNUG_E_USAGE, "w.csv: words and tags are read from JSON Lines");
    char found[64];
    assert_fails(s, dump(s, scratch_write(s, "w.conll", "a O\n", 4), true, found, sizeof found), SNUG_E_USAGE,
                 "give --task token_classification");
}

TEST_MAIN(NULL, NULL)
