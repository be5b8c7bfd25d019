/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of JSON files: how they are laid out, what their values become, and what is refused. */
#include <zlib.h>

#include "reader_fixture.h"

#define FIXTURE struct scratch *s, scratch_setup, scratch_teardown

/* The rows without their numbers and lines, which are 0@1, 1@2, …; and with --strict. */
static void reads_counted(struct scratch *s, const char *content, const char *expected) {
    char found[4096] = "", counted[4096] = "";
    assert_ok(s, dump(s, scratch_write(s, "a.json", content, strlen(content)), true, found, sizeof found));
    int row = 0;
    for (const char *at = expected; *at; at++) {
        strncat(counted, at, 1);
        if (*at != '\n') continue;
        snprintf(counted + strlen(counted), sizeof counted - strlen(counted), "%d@%d ", row, row + 1);
        row++;
    }
    assert_string_equal(found, counted);
}

/* ---- layouts ---- */

FIXTURE_TEST(objects) {
    reads(s, "a.jsonl", "{\"text\": \"a\\nb\", \"label\": 1}\n\n  \n{\"label\": -2, \"text\": \"\"}",
          "text~label\n0@1 a\nb~I:1\n1@4 ~I:-2");
    reads(s, "a.json", "{\n  \"a\": 1,\n  \"b\": [\n \"x\"\n ]\n}\n{\n  \"a\": 2,\n  \"b\": []\n}\n",
          "a~b\n0@1 I:1~L:x\n1@7 I:2~L:"); /* as json.dumps(…, indent=2) writes each */
    reads(s, "a.json", "\n {\"a\":1}{\"a\":2} {\"a\":\"}{\"}\r\n\t{\"a\":4}", "a\n0@2 I:1\n1@3 I:2\n2@4 }{\n3@5 I:4");
    reads(s, "a.json", "\xEF\xBB\xBF{\"a\": 1}\n", "a\n0@1 I:1");
    assert_int_equal(s->log_count, 0);
    reads(s, "a.jsonl", "{\"a\": 1}\n{\"a\": 2, \"b\": {\"c\": [1, {}]}}\n{\"a\": 2, \"c\": 3, \"b\": []}\n{}",
          "a\n0@1 I:1\n1@2 I:2\n2@3 I:2\n3@4 M:");
    assert_contains(s->log, "in 2 row(s), first \"b\" in line 2");
    assert_int_equal(s->log_count, 1);
}

FIXTURE_TEST(lists) {
    reads(s, "a.json", "\n [ {\"a\": \"]}\\\"\"},\n{\n\"a\": [1]\n}\n\n, {\"a\": 3} ]\n",
          "a\n0@2 ]}\"\n1@3 L:1\n2@7 I:3");
    /* rows of one line have different numbers */
    reads_counted(s, "[{\"a\":1},{\"a\":2},{\"a\":3}]", "a\nI:1\nI:2\nI:3");
    reads(s, "a.json", "[\n\n{\"a\":1},{\"a\":2},\n{\"a\":3},\n\n\n{\"a\":4}]",
          "a\n0@3 I:1\n1@4 I:2\n2@5 I:3\n3@7 I:4");
    reads(s, "a.jsonl", "[{\"a\": 1}]", "a\n0@1 I:1");
    refuses(s, "a.json", "[]", "is empty");
    refuses(s, "a.json", "[{\"a\": 1},]", "a list must hold objects, separated by commas");
    refuses(s, "a.json", "[,{\"a\": 1}]", "a list must hold objects");
    refuses(s, "a.json", "[{\"a\": 1} {\"a\": 1}]", "separated by commas");
    refuses(s, "a.json", "[[\"a\", 1], [\"b\", 2]]", "a list must hold objects");
    refuses(s, "a.json", "[{\"a\": 1},\n1]", "a.json:2: a list must hold objects");
    refuses(s, "a.json", "[{\"a\": 1},\n", "a.json:2: the file ends before its list does");
    refuses(s, "a.json", "[{\"a\": 1},\n{\"a\": [\n", "a.json:2: the file ends within the object");
    refuses(s, "a.json", "[{\"a\": 1}]\n\n{}", "a.json:3: there is text after the list");
    refuses(s, "a.json", "[{\"a\": 1},\n{\"a\"\n 1}]", "a.json:3: an object needs a colon after its key");
}

FIXTURE_TEST(lists_in_an_object) {
    reads_counted(s, "{\"data\": [{\"a\": 1}, {\"a\": 2}]}", "a\nI:1\nI:2");
    assert_contains(s->log, "its rows are the list \"data\" of its object");
    reads(s, "a.json",
          "{\"version\": \"v2\", \"skipped\": {\"x\": [NaN]},\n\"data\": [{\"a\": 1},\n{\"a\": 2}],\n\"end\": []}\n",
          "a\n0@2 I:1\n1@3 I:2");
    reads_counted(s, "{\"rows\": [{\"a\": 1}]}", "a\nI:1");
    reads_counted(s, "{\"examples\": [{\"a\": 1}], \"data\": [{\"b\": 1}, {\"b\": 2}]}", "b\nI:1\nI:2");
    reads_counted(s, "{\"data\": 1, \"other\": [1], \"data\": [{\"a\": 1}]}", "a\nI:1");
    refuses(s, "a.json", "{\"data\": [{\"a\": 1}, 2]}", "a list must hold objects");
    refuses(s, "a.json", "{\"data\": [{\"a\": 1}\n{\"a\": 2}]}",
            "a.json:2: column \"data\": a list needs a comma or ]");
    refuses(s, "a.json", "{\"data\": [{\"a\": 1}]\n, \"b\": }", "a.json:2: column \"b\": } is not JSON");
    refuses(s, "a.json", "{\"train\": [{\"a\": 1}], \"test\": [{\"a\": 2}]}",
            "it is not clear which has the rows: call it \"data\", or give the rows of one alone, as in jq -c "
            "'.\"train\"[]'");
    /* rows whose values are such lists */
    s->log_count = 0;
    reads_counted(s, "{\"text\": \"x\", \"spans\": [{\"from\": 1}]}\n{\"text\": \"y\", \"spans\": []}",
                  "text~spans\nx~O:a list of other values\ny~L:");
    reads_counted(s, "{\"data\": [{\"from\": 1}], \"text\": \"x\"}\n{\"text\": \"y\"}\n",
                  "data~text\nO:a list of other values~x\nM:~y");
    assert_int_equal(s->log_count, 0);
    reads_counted(s, "{\"text\": \"x\", \"spans\": [{\"from\": 1}]}", "text~spans\nx~O:a list of other values");
    assert_contains(s->log,
                    "its only object is read as a row: its list \"spans\" would have the rows if it were called");
}

FIXTURE_TEST(columns) {
    reads_counted(s, "{\"text\": [\"a\", \"b\", null], \"label\": [1, 0.50, NaN], \"x\": [{}, [[1]], [\"p\", \"q\"]]}",
                  "text~label~x\na~I:1~O:an object\nb~R:0.5~O:a list of other values\nM:~M:~L:p|q");
    assert_contains(s->log, "an object of columns: its lines are its rows, counted from 1");
    reads_counted(s, "{\n\"text\": [\n\"a\"\n,\n\"b\"\n]\n}\n", "text\na\nb");
    /* as pandas' to_json() writes them without arguments */
    reads_counted(s, "{\"text\":{\"0\":\"a\",\"7\":\"b\"},\"label\":{\"0\":1,\"7\":null}}", "text~label\na~I:1\nb~M:");
    reads_counted(s, "{\"text\": [\"a\", \"b\"], \"text\": [\"c\", \"d\"]}", "text\na\nb");
    refuses(s, "a.json", "{\"text\": [\"a\", \"b\"], \"label\": [1]}", "lists of different lengths");
    refuses(s, "a.json", "{\"text\": {\"0\": \"a\"}, \"label\": {\"0\": 1, \"1\": 2}}", "lists of different lengths");
    refuses(s, "a.json", "{\"columns\": [\"a\"], \"index\": [0, 1], \"data\": [[1], [2]]}",
            "to_json(FILE, orient=\"rec");
    refuses(s, "a.json", "{\"text\": [], \"label\": []}", "is empty: it holds no row");
    refuses(s, "a.json", "{\"text\": [\"a\", \"\\ud83d\"]}", "column \"text\": \\ud83d is half of a surrogate pair");
    /* a row */
    reads_counted(s, "{\"label\": [\"a\", \"b\"], \"text\": \"x\"}", "label~text\nL:a|b~x");
    reads_counted(s, "{\"text\": [\"a\"]}\n{\"text\": [\"b\"]}", "text\nL:a\nL:b");
    reads_counted(s, "{\"a\": {\"x\": 1}}", "a\nO:an object");
    reads_counted(s, "{\"a\": {\"\": 1}, \"b\": {\"1x\": 0}}", "a~b\nO:an object~O:an object");
    char found[256];
    const char words[] = "{\"tokens\": [\"a\", \"b\"], \"ner_tags\": [\"O\", \"O\"]}";
    assert_ok(s, dump_as(s, scratch_write(s, "w.json", words, sizeof words - 1), true, true, found, sizeof found));
    assert_string_equal(found, "tokens~ner_tags\n0@1 W:a/b/~W:O/O/");
    const char numbered[] = "{\"tokens\": {\"0\": [\"a\"]}, \"ner_tags\": {\"0\": [\"O\"]}}";
    assert_ok(s,
              dump_as(s, scratch_write(s, "w.json", numbered, sizeof numbered - 1), true, true, found, sizeof found));
    assert_string_equal(found, "tokens~ner_tags\n0@1 W:a/~W:O/");
    const char many[] = "{\"tokens\": [[\"a\", \"b\"], [\"c\"]], \"ner_tags\": [[1, 0], [2]]}";
    assert_ok(s, dump_as(s, scratch_write(s, "w.json", many, sizeof many - 1), true, true, found, sizeof found));
    assert_string_equal(found, "tokens~ner_tags\n0@1 W:a/b/~N:1/0/\n1@2 W:c/~N:2/");
}

/* ---- values ---- */

FIXTURE_TEST(values) {
    reads(s, "a.json",
          "{\"a\": 0.1, \"b\": [\"x\", 2, 0.5]}\n{\"a\": null, \"b\": []}\n{\"b\": true}\n{\"a\": [[1]], \"b\": {}}\n",
          "a~b\n0@1 R:0.1~L:x|2|0.5\n1@2 M:~L:\n2@3 M:~B:True\n3@4 O:a list of other values~O:an object");
    reads_counted(s, "{\"a\": [\"x|y\"]}\n{\"a\": [\"\"]}\n{\"a\": [\"x\\u0000\"]}\n{\"a\": [null]}\n{\"a\": [1, NaN]}",
                  "a\nO:a list with an item that holds '|', by which snug separates labels: rename it\n"
                  "O:a list with an empty item\nO:a list with an item that holds \\u0000\nO:a list of other values\n"
                  "O:a list of other values"); /* the separator would be ambiguous */
    reads_counted(s, "{\"a\": [ 1 , [2, {\"x\": []}] ], \"b\": false}", "a~b\nO:a list of other values~B:False");
    reads_counted(s, "{\"a\": \"\\u00e9\\\"\\\\\\/\\b\\f\\r\\t\\uD83D\\uDE00\\u20ac\"}",
                  "a\n\xC3\xA9\"\\/\b\f\r\t\xF0\x9F\x98\x80\xE2\x82\xAC");
}

FIXTURE_TEST(numbers) {
    static const struct {
        const char *written, *read;
    } cases[] = {
        {"0", "I:0"},
        {"-0", "I:0"},
        {"-12", "I:-12"},
        {"9223372036854775807", "I:9223372036854775807"},
        {"-9223372036854775808", "I:-9223372036854775808"},
        /* beyond 64 bits they keep their digits */
        {"9223372036854775808", "R:9223372036854775808"},
        {"-9223372036854775809", "R:-9223372036854775809"},
        {"123456789012345678901234567890", "R:123456789012345678901234567890"},
        /* as Python prints them */
        {"1.0", "R:1.0"},
        {"0.00000", "R:0.0"},
        {"1.500", "R:1.5"},
        {"-0.00", "R:-0.0"},
        {"0.00010", "R:0.0001"},
        {"0.00001", "R:1e-5"},
        {"100.000", "R:100.0"},
        {"1e5", "R:100000.0"},
        {"1E+2", "R:100.0"},
        {"0.1000000000000000055", "R:0.1"},
        {"123456.78901234567", "R:123456.78901234567"},
        /* beyond a double */
        {"1e999", "R:1e999"},
        /* as Python writes what is missing */
        {"NaN", "M:"},
        {"Infinity", "M:"},
        {"-Infinity", "M:"},
        {"null", "M:"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[128], expected[128];
        snprintf(text, sizeof text, "{\"a\": %s, \"b\": [0,%s ] }", cases[i].written, cases[i].written);
        const bool missing = *cases[i].read == 'M';
        snprintf(expected, sizeof expected, "a~b\n0@1 %s~%s%s", cases[i].read,
                 missing ? "O:a list of other values" : "L:0|", missing ? "" : cases[i].read + 2);
        reads(s, "a.jsonl", text, expected);
    }
    struct snug_reader *reader;
    struct snug_row row;
    const char text[] = "{\"a\": NaN, \"b\": null, \"c\": -Infinity}\n{\"b\": 1}\n";
    assert_ok(s, snug_reader_open(s->ctx, scratch_write(s, "a.jsonl", text, sizeof text - 1), &strictly, &reader));
    assert_ok(s, snug_reader_next(reader, &row)); /* messages can say what is missing */
    assert_string_equal(row.fields[0].text, "NaN");
    assert_string_equal(row.fields[1].text, "null");
    assert_string_equal(row.fields[2].text, "-Infinity");
    assert_ok(s, snug_reader_next(reader, &row));
    assert_string_equal(row.fields[0].text, "");
    snug_reader_close(reader);
}

/* Halves of surrogate pairs, which Python's json writes for what it could not decode. */
FIXTURE_TEST(surrogates) {
    static const struct {
        const char *written, *read;
    } cases[] = {
        {"x\\ud83dy", "x\xEF\xBF\xBDy"},
        {"\\ude00", "\xEF\xBF\xBD"},
        {"\\uD83D", "\xEF\xBF\xBD"},
        {"\\ud83d\\ud83d\\ude00", "\xEF\xBF\xBD\xF0\x9F\x98\x80"},
        {"\\ud83d\\ue000", "\xEF\xBF\xBD\xEE\x80\x80"},
        {"\\ud83d\\u0041", "\xEF\xBF\xBD"
                           "A"},
        {"\\ud83d\\t\\ud83d\\\\", "\xEF\xBF\xBD\t\xEF\xBF\xBD\\"},
        {"\\ud83d\\ud83d\\n", "\xEF\xBF\xBD\xEF\xBF\xBD\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[128], found[128], expected[128];
        snprintf(text, sizeof text, "{\"a\": \"ok\"}\n{\"a\": \"%s\"}\n", cases[i].written);
        snprintf(expected, sizeof expected, "a\n0@1 ok\n1@2 %s", cases[i].read);
        refuses(s, "a.jsonl", text, "a.jsonl:2: column \"a\": \\u");
        s->log_count = 0;
        assert_ok(s, dump(s, scratch_path(s, "a.jsonl"), false, found, sizeof found));
        assert_string_equal(found, expected);
        assert_int_equal(s->log_count, 1);
        assert_contains(s->log, "malformed UTF-8 in 1 line(s), first in line 2, replaced by U+FFFD, as are halves of");
    }
    char found[128]; /* once a row; a key of another column is no reason to refuse the row */
    const char text[] = "{\"a\": \"\\ud800\\ud800\", \"b\": [\"\\udfff\"], \"c\": {\"\\ud800\": 1}}";
    assert_ok(s, dump(s, scratch_write(s, "a.jsonl", text, sizeof text - 1), false, found, sizeof found));
    assert_string_equal(found, "a~b~c\n0@1 \xEF\xBF\xBD\xEF\xBF\xBD~L:\xEF\xBF\xBD~O:an object");
    assert_contains(s->log, "in 1 line(s), first in line 1");
    reads_counted(s, "{\"a\": \"x\", \"c\": {\"\\ud800\": \"\\ud800\"}}", "a~c\nx~O:an object");
}

/* A column that nobody uses never ends a run. */
FIXTURE_TEST(unused_values) {
    static const char *const odd[] = {
        "NaN",
        "1e99999",
        "-Infinity",
        "{\"a\": 1, \"a\": 2, \"\": NaN}",
        "[[[[[[[[[[]]]]]]]]]]",
        "[1, \"\\u0000\", null, {\"x\": [NaN]}]",
        "99999999999999999999999999999999999999999999999999",
        "\"\\u0000\"",
        "{\"\\u0000\": \"\\udead\"}",
        "{}",
    };
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        char text[256];
        snprintf(text, sizeof text, "{\"a\": \"x\", \"odd\": %s}\n{\"odd\": %s, \"a\": \"y\"}\n", odd[i], odd[i]);
        const char *path = scratch_write(s, "a.jsonl", text, strlen(text));
        struct snug_reader *reader;
        struct snug_row row;
        assert_ok(s, snug_reader_open(s->ctx, path, &strictly, &reader));
        assert_ok(s, snug_reader_next(reader, &row));
        assert_string_equal(row.fields[0].text, "x");
        assert_ok(s, snug_reader_next(reader, &row));
        assert_string_equal(row.fields[0].text, "y");
        assert_int_equal(snug_reader_next(reader, &row), SNUG_END);
        snug_reader_close(reader);
    }
    reads_counted(s, "{\"a\": \"x\", \"b\": 1, \"b\": 2}\n{\"a\": 1, \"b\": 2, \"a\": 3}\n{\"a\": \"z\", \"b\": 1}",
                  "a~b\nx~O:two values\nO:two values~I:2\nz~I:1");
    reads_counted(s, "{\"\": 1, \"a\\u0000b\": 2}", "~a?b\nI:1~I:2");
}

/* ---- refusals ---- */

FIXTURE_TEST(refusals) {
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"{\"a\": 1}\n{\"a\": \n", "a.jsonl:2: the file ends within the object that begins here: it is truncated"},
        {"{\"a\": 1}\n{\"a\": \"x\n\"}", "a.jsonl:2: column \"a\": a line ends within a string: its quote is missing"},
        {"{\"a\": 1}\n{\"a\": \"x\ty\"}", "a.jsonl:2: column \"a\": a control character in a string"},
        {"{\"a\": {\"b\": \"x\ty\"}}", "column \"a\": a control character in a string"},
        {"{\"a\": {\"b\": \"x\\\ty\"}}", "column \"a\": a control character in a string"},
        {"{\"a\": 1}\n[1]\n", "a.jsonl:2: a row must be an object"},
        {"{\"a\": 1}\n\"x\"\n", "a.jsonl:2: a row must be an object"},
        {"{\"a\": 1},\n{\"a\": 1}\n", "a.jsonl:1: a comma between objects: remove it, or write them as a list"},
        {"7", "a.jsonl:1: a row must be an object"},
        {"{\"a\": 1}\n{\"a\" 1}", "a.jsonl:2: an object needs a colon after its key"},
        {"{\"a\": 1 \"b\": 2}", "a.jsonl:1: an object needs a comma or } here"},
        {"{\"a\": {\"b\": 1 2}}", "column \"a\": an object needs a comma or } here"},
        {"{\"a\": {\"b\" 1}}", "column \"a\": an object needs a colon after its key"},
        {"{\"a\": {1: 1}}", "column \"a\": an object needs a key in double quotes here"},
        {"{\"a\": {\"b\": [1 2]}}", "column \"a\": a list needs a comma or ] here"},
        {"{\"a\": [1 2]}", "column \"a\": a list needs a comma or ] here"},
        {"{\"a\": [1,]}", "column \"a\": ] is not JSON"},
        {"{\"a\": 1, }", "an object needs a key in double quotes here"},
        {"{a: 1}", "an object needs a key in double quotes here"},
        {"{'a': 'b'}", "an object needs a key in double quotes here"},
        {"{\"a\": 'b'}", "column \"a\": ' is not JSON, but how Python prints values: write them with json.dumps()"},
        {"{\"a\": None}", "None is not JSON, but how Python prints values"},
        {"{\"a\": True}", "True is not JSON, but how Python prints values"},
        {"{\"a\": False}", "False is not JSON, but how Python prints values"},
        {"{\"a\": undefined}", "undefined is not JSON"},
        {"{\"a\": not_set}", "not_set is not JSON"},
        {"{\"a\": \xE2\x80\x9Cx\xE2\x80\x9D}", "\xE2\x80\x9C is not JSON"},
        {"{\"a\": 01}", "01 is not JSON"},
        {"{\"a\": 1.}", "1. is not JSON"},
        {"{\"a\": .5}", ".5 is not JSON"},
        {"{\"a\": -}", "- is not JSON"},
        {"{\"a\": +1}", "+1 is not JSON"},
        {"{\"a\": 1e}", "1e is not JSON"},
        {"{\"a\": 1e-}", "1e- is not JSON"},
        {"{\"a\": 1e+2x}", "1e+2x is not JSON"},
        {"{\"a\": \"\\x41\"}", "column \"a\": a backslash in a string must be written as \\\\"},
        {"{\"a\": \"\\u12g4\"}", "column \"a\": \\u in a string needs four hexadecimal digits"},
        {"{\"a\": \"\\ud83d\\u12\"}", "column \"a\": \\u in a string needs four hexadecimal digits"},
        {"{\"a\": \"\\ud83d\\x\"}", "half of a surrogate pair"},
        {"{}\n", "the first object has no keys"},
        {" \n\n", "is empty"},
        {"", "is empty"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) refuses(s, "a.jsonl", cases[i].text, cases[i].says);
    char found[64];
    const char loose[] = "{\"a\": \"\\ud83d\\x\"}";
    assert_fails(s, dump(s, scratch_write(s, "a.jsonl", loose, sizeof loose - 1), false, found, sizeof found),
                 SNUG_E_INPUT, "a backslash in a string");
    static char deep[8192];
    for (int levels = 1000; levels <= 1100; levels += 100) {
        const int length = snprintf(deep, sizeof deep, "{\"a\": ");
        memset(deep + length, '[', (size_t)levels);
        memset(deep + length + levels, ']', (size_t)levels);
        memcpy(deep + length + 2 * levels, "}", 2);
        if (levels == 1000)
            reads(s, "a.jsonl", deep, "a\n0@1 O:a list of other values");
        else
            refuses(s, "a.jsonl", deep, "column \"a\": over 1000 lists and objects within each other");
    }
}

/* Every beginning of a file is refused, or is a file of fewer rows. */
FIXTURE_TEST(beginnings) {
    static const char *const texts[] = {
        "{\"a\": \"\\u00e9\\\"\", \"b\": [-1.5e3, {\"x\": null}], \"c\": {\"d\": true}}", "[{\"a\": 1}, {\"a\": 2}]",
        "{\"v\": 1, \"data\": [{\"a\": 1}, {\"a\": 2}], \"w\": []}", "{\"a\": [\"x\", \"y\"], \"b\": [1, 2]}",
        "{\"a\": {\"0\": \"x\"}, \"b\": {\"0\": 2}}"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char found[256];
        for (size_t size = 0; size < strlen(texts[i]); size++)
            assert_fails(s, dump(s, scratch_write(s, "t.json", texts[i], size), true, found, sizeof found),
                         SNUG_E_INPUT, "t.json");
        assert_ok(s, dump(s, scratch_write(s, "t.json", texts[i], strlen(texts[i])), true, found, sizeof found));
    }
}

/* ---- nested values that are kept ---- */

static snug_status dump_nested(struct scratch *s, const char *text, size_t length, bool strict, char *out,
                               size_t size) {
    static const char *const names[] = {"m", "t", NULL};
    const struct snug_reader_options options = {.strict = strict, .nested = names};
    return dump_with(s, scratch_write(s, "n.json", text, length), &options, out, size);
}

static void reads_nested(struct scratch *s, const char *text, const char *expected) {
    char found[1024] = "";
    assert_ok(s, dump_nested(s, text, strlen(text), true, found, sizeof found));
    assert_string_equal(found, expected);
}

/* Lists and objects of the named columns are JSON texts without blanks, which read back the same. */
FIXTURE_TEST(nested) {
    reads_nested(
        s,
        "{\"m\" : [ {\"role\" : \"a\\u00e9\\n\\\"\\\\/\\/\\u0001\\ud83d\\ude00\" , \"x\": [ ] } ,\n{ } ] , \"o\": "
        "[[1]]}",
        "m~o\n0@1 J:[{\"role\":\"a\u00e9\\u000a\\\"\\\\//\\u0001\U0001F600\",\"x\":[]},{}]~O:a list of other values");
    reads_nested(
        s,
        "{\"t\": {\"a\": -0, \"b\": 1.50, \"c\": 1e2, \"d\": true, \"e\": false, \"f\": null, \"g\": NaN, \"h\": "
        "12345678901234567890}}",
        "t\n0@1 "
        "J:{\"a\":0,\"b\":1.5,\"c\":100.0,\"d\":true,\"e\":false,\"f\":null,\"g\":null,\"h\":12345678901234567890}");
    reads_nested(s, "{\"m\": \"a\", \"t\": 5}{\"t\": null, \"m\": []}{\"m\": {}}",
                 "m~t\n0@1 a~I:5\n1@2 J:[]~M:\n2@3 J:{}~M:");
    char long_text[512] = "{\"k\": 1, \"m\": [\"", long_read[512] = "k~m\n0@1 I:1~J:[\"";
    for (int i = 0; i < 40; i++) {
        strcat(long_text, i % 2 ? "\\u001F" : "\\\\");
        strcat(long_read, i % 2 ? "\\u001f" : "\\\\");
    }
    reads_nested(s, strcat(long_text, "\"]}"), strcat(long_read, "\"]"));
    /* of which a list is no list of rows, but of columns it is one of their values */
    reads_nested(s, "{\"m\": [{\"a\": 1}, {\"a\": 2}]}", "m\n0@1 J:[{\"a\":1},{\"a\":2}]");
    reads_nested(s, "{\"t\": [{\"a\": 1}], \"m\": [{\"a\": 2}]}", "t~m\n0@1 J:[{\"a\":1}]~J:[{\"a\":2}]");
    reads_nested(s, "{\"data\": [{\"m\": [{\"a\": 1}]}]}", "m\n0@1 J:[{\"a\":1}]");
    reads_nested(s, "{\"m\": [[{\"a\": 1}], [2]], \"k\": [1, 2]}", "m~k\n0@1 J:[{\"a\":1}]~I:1\n1@2 J:[2]~I:2");
    assert_int_equal(strstr(s->log, "would have the rows") != NULL, false);
}

FIXTURE_TEST(nested_that_are_refused) {
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"{\"m\": [1 2]}", "n.json:1: column \"m\": a list needs a comma or ] here"},
        {"{\"m\":\n{\"a\" 1}}", "n.json:2: column \"m\": an object needs a colon after its key"},
        {"{\"m\": {\"a\": 1 \"b\"}}", "an object needs a comma or } here"},
        {"{\"m\": {a: 1}}", "an object needs a key in double quotes here"},
        {"{\"m\": [None]}", "None is not JSON"},
        {"{\"m\": [\"a\nb\"]}", "a line ends within a string"},
        {"{\"k\": 1, \"m\": [\"a\\u0000b\"]}", "column \"m\": \\u0000 in a chat: remove it"},
        {"{\"k\": 1, \"m\": [\"\\ud83d\"]}", "half of a surrogate pair"},
        {"{\"m\": [{\"a\": \"x", "truncated"},
    };
    char found[256];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_fails(s, dump_nested(s, cases[i].text, strlen(cases[i].text), true, found, sizeof found), SNUG_E_INPUT,
                     cases[i].says);
    static const char half[] = "{\"k\": 1, \"m\": [\"\\ud83d\", \"\xff\"]}";
    assert_ok(s, dump_nested(s, half, sizeof half - 1, false, found, sizeof found));
    assert_string_equal(found, "k~m\n0@1 I:1~J:[\"\uFFFD\",\"\uFFFD\"]");
    static char deep[4096];
    memset(deep, '[', sizeof deep);
    memcpy(deep, "{\"m\": ", 6);
    assert_fails(s, dump_nested(s, deep, sizeof deep, true, found, sizeof found), SNUG_E_INPUT,
                 "over 1000 lists and objects within each other");
}

/* ---- parts and sizes ---- */

/* Each byte is once the first of a part that is read. */
FIXTURE_TEST(parts) {
    static const struct {
        const char *text, *read;
    } cases[] = {
        {"{\"a\": \"\\u00e9\\ud83d\\ude00\xC3\xA9\\\"\", \"b\": [-1.5e3, \"x\"], \"c\": {\"d\": true}}{\"a\": 12345}",
         "a~b~c\n0@1 \xC3\xA9\xF0\x9F\x98\x80\xC3\xA9\"~L:-1500.0|x~O:an object\n1@2 I:12345~M:~M:"},
        {"[{\"a\": 1}, {\"a\": \"xy\"}]", "a\n0@1 I:1\n1@2 xy"},
        {"{\"v\": null, \"data\": [{\"a\": 1}, {\"a\": \"xy\"}], \"w\": [\"x\"]}", "a\n0@1 I:1\n1@2 xy"},
        {"{\"a\": [\"x\", \"y\"], \"b\": [1, 2]}", "a~b\n0@1 x~I:1\n1@2 y~I:2"},
        {"{\"m\": [{\"k\\n\": \"\\\\x\", \"v\": [true, -1.25, null]}, 7]}",
         "m\n0@1 J:[{\"k\\u000a\":\"\\\\x\",\"v\":[true,-1.25,null]},7]"},
    };
    enum { PART = 1 << 16 };
    char *text = malloc(PART + 256);
    assert_non_null(text);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const size_t length = strlen(cases[i].text);
        for (size_t before = 1; before < length; before++) {
            char found[256];
            memset(text, ' ', PART);
            memcpy(text + PART - before, cases[i].text, length);
            assert_ok(s, dump_nested(s, text, PART - before + length, true, found, sizeof found));
            assert_string_equal(found, cases[i].read);
        }
    }
    free(text);
}

/* Blanks that fill the reader's buffer, before the first row of a list and after its end. */
FIXTURE_TEST(blanks) {
    enum { BLANKS = 100000 };
    static char text[2 * BLANKS + 64], found[64];
    memset(text, ' ', sizeof text);
    memcpy(text, "[\t\r\n", 4);
    memcpy(text + BLANKS, "{\"a\": 1}\t]\r\n", 12);
    assert_ok(s, dump(s, scratch_write(s, "a.json", text, sizeof text), true, found, sizeof found));
    assert_string_equal(found, "a\n0@2 I:1");
    text[sizeof text - 1] = '\0';
    struct snug_reader *reader;
    struct snug_row row;
    assert_ok(s, snug_reader_open(s->ctx, scratch_write(s, "a.json", text, sizeof text), &strictly, &reader));
    assert_ok(s, snug_reader_next(reader, &row));
    assert_fails(s, snug_reader_next(reader, &row), SNUG_E_INPUT, "a.json:3: a NUL byte");
    assert_int_equal(snug_reader_next(reader, &row), SNUG_E_INPUT); /* nothing after it is read */
    snug_reader_close(reader);
    memcpy(text, "{\t\r\n", 4);
    text[BLANKS / 2] = '\0'; /* while it is read ahead */
    assert_fails(s, dump(s, scratch_write(s, "a.json", text, sizeof text), true, found, sizeof found), SNUG_E_INPUT,
                 "a.json:2: a NUL byte");
}

/* NUL, written as an escape, is a character of a text. */
FIXTURE_TEST(nul) {
    static const char text[] = "{\"a\": \"x\\u0000y\"}";
    struct snug_reader *reader;
    struct snug_row row;
    assert_ok(s, snug_reader_open(s->ctx, scratch_write(s, "a.jsonl", text, sizeof text - 1), &strictly, &reader));
    assert_ok(s, snug_reader_next(reader, &row));
    assert_int_equal(row.fields[0].length, 3);
    assert_memory_equal(row.fields[0].text, "x\0y", 4);
    snug_reader_close(reader);
}

/* Objects of over 16 MiB, which are not read ahead as a whole, through gzip. */
FIXTURE_TEST(long_objects) {
    enum { ROWS = 200000 };
    static const struct {
        const char *begin, *row, *end, *says;
        int64_t rows;
    } cases[] = {
        {"{\"v\": 1, \"data\": [", "{\"a\": \"%0100d\"}", "], \"w\": 2}", NULL, ROWS},
        {"{\"rows\": [", "{\"a\": \"%0100d\"}", "]}", NULL, ROWS},
        {"{\"rows\": [", "{\"a\": \"%0100d\"}", "], \"w\": 2 ]", NULL, -ROWS},
        {"{\"rows\": [", "{\"a\": \"%0100d\"}", "], \"w\" 2}", NULL, -ROWS},
        {"{\"a\": [", "\"%0100d\"", "], \"b\": []}", "lists of different lengths", 0},
        {"{\"a\": [", "\"%0100d\"", "]}", NULL, ROWS},
        {"{\"v\": 1, \"x\": [", "{\"a\": \"%0100d\"}", "]}", "jq -c '.\"x\"[]'", 0},
        {"{\"v\": 1, \"x\": [", "\"%0100d\"", "]}", NULL, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gzFile file = gzopen(scratch_path(s, "long.json.gz"), "wb1");
        assert_non_null(file);
        gzputs(file, cases[i].begin);
        for (int row = 0; row < ROWS; row++) {
            if (row) gzputs(file, ",");
            gzprintf(file, cases[i].row, row); // NOLINT: the formats are literals above
        }
        gzputs(file, cases[i].end);
        assert_int_equal(gzclose(file), Z_OK);
        struct snug_reader *reader;
        struct snug_row row;
        const snug_status status = snug_reader_open(s->ctx, s->path, &strictly, &reader);
        if (cases[i].says) {
            assert_fails(s, status, SNUG_E_INPUT, cases[i].says);
            continue;
        }
        assert_ok(s, status);
        int64_t rows = 0;
        snug_status ended;
        while ((ended = snug_reader_next(reader, &row)) == SNUG_OK) {
            if (cases[i].rows != 1) assert_int_equal(strtol(row.fields[0].text, NULL, 10), rows);
            rows++;
        }
        assert_int_equal(rows, labs(cases[i].rows)); /* below 0: then it is malformed */
        if (cases[i].rows < 0) assert_fails(s, ended, SNUG_E_INPUT, "an object needs a co");
        snug_reader_close(reader);
    }
}

TEST_MAIN(NULL, NULL)
