/* SPDX-License-Identifier: Apache-2.0 */
/* Chat templates against transformers: our own of each construct (tools/golden/jinja.py), and released ones in
   $SNUG_MODELS/tokenizers/templates (tools/golden/chat_templates.py). Hostile ones end with an error.

   test_jinja render: renders JSON lines {"template", "variables", "now"} of standard input, for that script. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "io/json.h"
#include "jinja/jinja.h"
#include "test.h"

static snug_context *ctx;

static int set_up(void **state) {
    (void)state;
    return snug_context_create(&ctx) != SNUG_OK;
}

static int tear_down(void **state) {
    (void)state;
    snug_context_destroy(ctx);
    return 0;
}

static json_t *read_golden(const char *name) {
    char path[512];
    json_t *value;
    snprintf(path, sizeof path, SNUG_SOURCE_DIR "/tests/golden/%s", name);
    if (snug_json_read(ctx, NULL, path, &value) != SNUG_OK) fail_msg("%s", snug_error_message(ctx));
    return value;
}

/* Renders one; *out is empty where that fails, and the message is the context's. */
static snug_status render(const char *text, size_t length, const struct snug_jinja_input *input,
                          struct snug_jinja_output *out) {
    struct snug_jinja_template *template;
    *out = (struct snug_jinja_output){0};
    snug_clear_error(ctx);
    snug_status status = snug_jinja_parse(ctx, "template", text, length, &template);
    if (status == SNUG_OK) {
        status = snug_jinja_render(ctx, template, input, out);
        snug_jinja_free(template);
    }
    return status;
}

static struct tm time_of(const json_t *seconds) {
    const time_t now = (time_t)json_integer_value(seconds);
    struct tm out;
    gmtime_r(&now, &out);
    return out;
}

/* The message without "template:LINE: ". */
static const char *message(void) {
    const char *text = snug_error_message(ctx);
    if (strncmp(text, "template:", 9) != 0) return text;
    text = strchr(text + 9, ':');
    return text ? text + 2 : "";
}

TEST(test_golden) {
    json_t *golden = read_golden("jinja.json"), *one;
    const json_t *variables = json_object_get(golden, "variables");
    struct snug_jinja_input input = {
        .variables = &variables, .count = 1, .now = time_of(json_object_get(golden, "now"))};
    size_t i, k;
    assert_true(json_array_size(json_object_get(golden, "cases")) > 270);
    json_array_foreach(json_object_get(golden, "cases"), i, one) {
        const json_t *text = json_object_get(one, "text"), *spans = json_object_get(one, "spans");
        const char *template = json_string_value(json_object_get(one, "template"));
        const char *error = json_string_value(json_object_get(one, "error"));
        struct snug_jinja_output out;
        const snug_status status = render(template, strlen(template), &input, &out);
        if (error) {
            if (status != SNUG_E_INPUT) fail_msg("%s: no error, expected: %s", template, error);
            if (*error) assert_string_equal(message(), error);
            assert_null(out.text);
            continue;
        }
        if (status != SNUG_OK) fail_msg("%s: %s", template, snug_error_message(ctx));
        if (strcmp(out.text, json_string_value(text)) != 0)
            fail_msg("%s:\n%s\nexpected\n%s", template, out.text, json_string_value(text));
        assert_int_equal(out.length, json_string_length(text));
        assert_int_equal(out.span_count, json_array_size(spans));
        for (k = 0; k < out.span_count; k++) {
            const json_t *span = json_array_get(spans, k);
            assert_int_equal(out.spans[k].begin, json_integer_value(json_array_get(span, 0)));
            assert_int_equal(out.spans[k].end, json_integer_value(json_array_get(span, 1)));
        }
        snug_jinja_output_free(&out);
    }
    json_decref(golden);
}

/* ---- released templates ---- */

/* What chat_templates.py's comparable() leaves of a message. */
static const char *comparable(void) {
    const char *text = message();
    for (const char *at = text; *at; at++)
        if (*at < ' ' || *at > '~' || *at == '\\') return "";
    return strstr(text, "nested more than") ? "" : text;
}

static void hash_result(XXH3_state_t *hash, snug_status status, const struct snug_jinja_output *out) {
    char text[64];
    if (status != SNUG_OK) {
        assert_int_equal(status, SNUG_E_INPUT);
        XXH3_64bits_update(hash, "error", 6);
        XXH3_64bits_update(hash, comparable(), strlen(comparable()) + 1);
        return;
    }
    XXH3_64bits_update(hash, out->text, out->length + 1);
    for (size_t i = 0; i < out->span_count; i++) {
        const int length = snprintf(text, sizeof text, "%zu %zu ", out->spans[i].begin, out->spans[i].end);
        XXH3_64bits_update(hash, text, (size_t)length);
    }
    XXH3_64bits_update(hash, "", 1);
}

static uint64_t hash_all(const json_t *golden, const struct snug_jinja_template *template) {
    XXH3_state_t *hash = XXH3_createState();
    json_t *conversation, *variables;
    size_t i, k;
    assert_non_null(hash);
    XXH3_64bits_reset(hash);
    json_array_foreach(json_object_get(golden, "conversations"), i, conversation) {
        json_t *messages = json_pack("{s:O}", "messages", conversation);
        json_array_foreach(json_object_get(golden, "variables"), k, variables) {
            const json_t *const all[] = {messages, variables, json_object_get(golden, "defaults")};
            const struct snug_jinja_input input = {
                .variables = all, .count = 3, .now = time_of(json_object_get(golden, "now"))};
            struct snug_jinja_output out;
            snug_clear_error(ctx);
            hash_result(hash, snug_jinja_render(ctx, template, &input, &out), &out);
            snug_jinja_output_free(&out);
        }
        json_decref(messages);
    }
    const uint64_t digest = XXH3_64bits_digest(hash);
    XXH3_freeState(hash);
    return digest;
}

TEST(test_released_templates) {
    const char *models = getenv("SNUG_MODELS");
    json_t *golden = read_golden("chat_templates.json"), *hashes;
    const char *name;
    if (!models) {
        print_message("skipped: SNUG_MODELS names no folder with chat templates\n");
        json_decref(golden);
        skip();
    }
    json_object_foreach(json_object_get(golden, "templates"), name, hashes) {
        struct snug_jinja_template *template;
        char path[1024], *text;
        size_t size;
        snprintf(path, sizeof path, "%s/tokenizers/templates/%s", models, name);
        if (snug_file_read(ctx, NULL, path, &text, &size) != SNUG_OK) fail_msg("%s", snug_error_message(ctx));
        if (XXH3_64bits(text, size) != strtoull(json_string_value(json_array_get(hashes, 0)), NULL, 16))
            fail_msg("%s is another version: run tools/golden/chat_templates.py", path);
        if (snug_jinja_parse(ctx, "template", text, size, &template) != SNUG_OK)
            fail_msg("%s: %s", name, snug_error_message(ctx));
        if (hash_all(golden, template) != strtoull(json_string_value(json_array_get(hashes, 1)), NULL, 16))
            fail_msg("%s: see tools/golden/chat_templates.py --compare build/test_jinja %s", name, name);
        snug_jinja_free(template);
        free(text);
    }
    json_decref(golden);
}

/* ---- errors and limits ---- */

static void expect_error(const char *template, const char *expected) {
    const struct snug_jinja_input input = {.steps_most = 3000000, .memory_most = 8 << 20};
    struct snug_jinja_output out;
    if (render(template, strlen(template), &input, &out) != SNUG_E_INPUT) fail_msg("%s: no error", template);
    if (!strstr(snug_error_message(ctx), expected))
        fail_msg("%s: \"%s\", expected \"%s\"", template, snug_error_message(ctx), expected);
}

TEST(test_errors_name_the_line) {
    expect_error("a\n{# b\n #}\n{{ 1 / 0 }}", "template:4: division by zero");
    expect_error("{% if true %}\n\n{{ x.y }}{% endif %}", "template:3: 'x' is undefined");
    expect_error("\n\n{% for %}", "template:3: Expected an expression");
    expect_error("a\n  {%- set x = 'a\nb' %}\n{{ x[0] + 1 }}", "template:4: can only concatenate str");
    expect_error("{% macro m() %}\n{{ raise_exception('x') }}\n{% endmacro %}\n\n{{ m() }}", "template:2: x");
}

static const char *const not_supported[][2] = {
    {"{% include 'x' %}", "'include' is not supported"},
    {"{% extends 'x' %}", "'extends' is not supported"},
    {"{% block a %}{% endblock %}", "'block' is not supported"},
    {"{{ 9223372036854775807 + 1 }}", "more than 64 bits"},
    {"{{ -9223372036854775807 - 2 }}", "more than 64 bits"},
    {"{{ 3037000500 * 3037000500 }}", "more than 64 bits"},
    {"{{ 2 ** 64 }}", "more than 64 bits"},
    {"{{ 3 ** 50 }}", "more than 64 bits"},
    {"{{ (-9223372036854775807 - 1) // -1 }}", "more than 64 bits"},
    {"{{ 9223372036854775808 }}", "more than 64 bits"},
    {"{{ 12345678901234567890123 }}", "more than 64 bits"},
    {"{{ '{!rr}'.format(1) }}", "not supported"},
    {"{{ [1]|tojson(separators=[1]) }}", "separators"},
    {"{{ '%a' % 1 }}", "not supported"},
    {"{{ '{'.format(1) }}", "expected '}'"},
    {"{{ 1e30|int }}", "more than 64 bits"},
    {"{{ '7'|int(0, 16) }}", "another base"},
    {"{{ '7'|int(0, none) }}", "another base"},
    {"{{ ('1' * 80)|int }}", "more than 64 bits"},
    {"{{ '{99999999}'.format(1) }}", "no value"},
    {"{{ [1, 2][1:, 0] }}", "not supported"},
    {"{{ (-8) ** 0.5 }}", "complex numbers"},
    {"{{ 1e999 }}", "too large"},
    {"{{ '\\N{DASH}' }}", "not supported"},
    {"{{ '\\ud83d' }}", "no Unicode character"},
    {"{{ '\\x4' }}", "too short"},
    {"{{ range }}", "cannot be printed"},
    {"{{ [1]|map('string') }}", "cannot be printed"},
    {"{{ [1, 2][0, 1:2] }}", "not supported"},
    {"{{ '{:{}}'.format(1, 2) }}", "not supported"},
    {"{{ '{!a}'.format(1) }}", "not supported"},
    {"{{ '{:q}'.format(1) }}", "format specifier"},
    {"{{ '{:99999}'.format(1) }}", "format specifier"},
    {"{{ '{:.999}'.format(1.5) }}", "format specifier"},
    {"{{ '{:d}'.format('a') }}", "needs a number"},
    {"{{ '{:d}'.format(1.5) }}", "cannot be written as an integer"},
    {"{{ '{'.format() }}", "expected '}'"},
    {"{{ '}'.format() }}", "Single '}'"},
    {"{{ '{}'.format() }}", "out of range"},
    {"{{ '{a}'.format() }}", "no value"},
    {"{{ '%z' % 1 }}", "unsupported format character"},
    {"{{ '%' % 1 }}", "incomplete format"},
    {"{{ '%(a' % {} }}", "incomplete format key"},
    {"{{ '%(a)s' % 1 }}", "requires a mapping"},
    {"{{ '%(a)s' % {} }}", "no value"},
    {"{{ '%99999d' % 1 }}", "width too big"},
    {"{{ '%.999f' % 1 }}", "precision too big"},
    {"{{ '%c' % 65 }}", "not supported"},
    {"{{ ''.join(1) }}", "not iterable"},
    {"{{ 'a'.split(1) }}", "must be str"},
    {"{{ 'a'.center(5, 'xy') }}", "exactly one character"},
    {"{{ 'a'.zfill('b') }}", "cannot be interpreted as an integer"},
    {"{{ 'a'.zfill(x) }}", "'x' is undefined"},
    {"{{ 'a'.zfill() }}", "misses its argument 'width'"},
    {"{{ 'a'.zfill(1, 2) }}", "takes at most 1"},
    {"{{ 'a'.zfill(q=1, width=2) }}", "unexpected keyword argument"},
    {"{{ [1].index(2) }}", "not in the list"},
    {"{{ 'a'.partition('') }}", "empty separator"},
    {"{% for i in [1] %}{{ loop.cycle() }}{% endfor %}", "no items for cycling"},
    {"{{ dict([1, 2]) }}", "not iterable"},
    {"{{ dict([(1, 2, 3)]) }}", "has length 3"},
    {"{{ dict({}, {}) }}", "at most 1 argument"},
    {"{{ dict(**1) }}", "must be a mapping"},
    {"{{ dict(**{1: 2}) }}", "keywords must be strings"},
    {"{{ dict(a=1, **{'a': 2}) }}", "multiple values"},
    {"{{ 'x'|truncate(1) }}", "at least 3"},
    {"{{ [1]|batch(0) }}", "at least one"},
    {"{{ [1]|slice(0) }}", "at least one"},
    {"{{ [1]|map('string')|last }}", "not reversible"},
    {"{{ [1]|tojson(separators=1) }}", "separators"},
    {"{{ {(1, 2): 1}|tojson }}", "keys must be"},
    {"{{ 'a'|round }}", "__round__"},
    {"{{ x|round }}", "'x' is undefined"},
    {"{{ x|int }}", "'x' is undefined"},
    {"{{ x|float }}", "'x' is undefined"},
    {"{{ x|dictsort }}", "'x' is undefined"},
    {"{{ [1]|dictsort }}", "no attribute 'items'"},
    {"{{ 'a'|format(1, b=2) }}", "at the same time"},
    {"{{ 0 ** -1 }}", "negative power"},
    {"{{ 1e200 ** 2 }}", "out of range"},
    {"{{ 1.5 / 0 }}", "float division by zero"},
    {"{{ 1.5 % 0 }}", "float divmod()"},
    {"{{ x[1:2] }}", "'x' is undefined"},
};

TEST(test_what_is_not_supported) {
    for (size_t i = 0; i < sizeof not_supported / sizeof *not_supported; i++)
        expect_error(not_supported[i][0], not_supported[i][1]);
}

/* begin count times, then middle, then end count times. */
static char *nest(const char *begin, const char *middle, const char *end, size_t count) {
    char *text = malloc(count * (strlen(begin) + strlen(end)) + strlen(middle) + 1), *to = text;
    assert_non_null(text);
    for (size_t i = 0; i < count; i++) to = stpcpy(to, begin);
    to = stpcpy(to, middle);
    for (size_t i = 0; i < count; i++) to = stpcpy(to, end);
    return text;
}

TEST(test_hostile_templates_end) {
    static const struct {
        const char *begin, *middle, *end, *expected;
    } nested[] = {
        {"{{ ((((((((((((", "1", "", ""},
        {"(", "{{ 1 }}", "", NULL},
        {"{% if true %}", "", "{% endif %}", "nested"},
        {"{% for i in [1] %}", "", "{% endfor %}", "nested"},
        {"{% set a %}", "", "{% endset %}", "nested"},
    };
    static const char *const operands[][3] = {
        {"{{ ", "(", ")"},   {"{{ ", "[", "]"},           {"{{ ", "{1:", "}"},    {"{{ ", "-", ""},
        {"{{ ", "not ", ""}, {"{{ ", "1 if 1 else ", ""}, {"{{ x", "[x", "]"},    {"{{ x", ".a", ""},
        {"{{ 1", "+1", ""},  {"{{ 1", "|string", ""},     {"{{ 1", " and 1", ""}, {"{{ f", "(f", ")"},
        {"{{ 1", "~1", ""},  {"{{ 1", " if 1", ""},       {"{{ 1.", "1", ""},
    };
    const struct snug_jinja_input input = {.steps_most = 3000000, .memory_most = 8 << 20};
    struct snug_jinja_output out;
    for (size_t i = 0; i < sizeof nested / sizeof *nested; i++) {
        char *text = nest(nested[i].begin, nested[i].middle, nested[i].end, 20000);
        const snug_status status = render(text, strlen(text), &input, &out);
        if (status == SNUG_OK ? nested[i].expected != NULL
                              : !strstr(snug_error_message(ctx), nested[i].expected ? nested[i].expected : "?"))
            fail_msg("%s…: %s", nested[i].begin, snug_error_message(ctx));
        snug_jinja_output_free(&out);
        free(text);
    }
    for (size_t i = 0; i < sizeof operands / sizeof *operands; i++)
        for (size_t count = 50; count < 100000; count *= 20) {
            char *inner = nest(operands[i][1], "1", operands[i][2], count), *text = malloc(strlen(inner) + 16);
            sprintf(text, "%s%s }}", operands[i][0], inner);
            const snug_status status = render(text, strlen(text), &input, &out);
            assert_true(status == SNUG_OK || status == SNUG_E_INPUT);
            snug_jinja_output_free(&out);
            free(inner);
            free(text);
        }
}

TEST(test_limits) {
    static const char loops[] =
        "{% set t = 'x' * 1000000 %}{% for a in range(9999) %}{% set b = 'xy' in t %}{% endfor %}";
    expect_error(loops, "takes more than 3000000 steps");
    expect_error(
        "{% for a in range(99999) %}{% for b in range(99999) %}xxxxxxxxxxxxxxxxxxxxxxxxx{% endfor %}{% endfor %}",
        "template:1: the template");
    expect_error("{{ 'x' * 100000000 }}", "the template");
    expect_error("{{ ('x' * 1000000) * 1000 }}", "needs more than 8 MiB");
    expect_error("{{ [0] * 100000000 }}", "the template");
    expect_error(
        "{% set ns = namespace(a=[]) %}{% for i in range(5000) %}{% set ns.a = [ns.a] %}{% endfor %}{{ ns.a }}",
        "nested more than 1000 deep");
    expect_error(
        "{% set ns = namespace(a=[]) %}{% for i in range(5000) %}{% set ns.a = [ns.a] %}{% endfor %}{{ ns.a|tojson }}",
        "nested more than 1000 deep");
    expect_error("{% set ns = namespace(a=[], b=[]) %}{% for i in range(5000) %}{% set ns.a = [ns.a] %}{% set ns.b = "
                 "[ns.b] %}{% endfor %}{{ ns.a == ns.b }}",
                 "nested more than 1000 deep");
    expect_error("{% set ns = namespace(a=[], b=[]) %}{% for i in range(5000) %}{% set ns.a = [ns.a] %}{% set ns.b = "
                 "[ns.b] %}{% endfor %}{{ ns.a < ns.b }}",
                 "nested more than 1000 deep");
    expect_error("{% set ns = namespace(a='x') %}{% for i in range(60) %}{% set ns.a = ns.a ~ ns.a %}{% endfor %}",
                 "needs more than 8 MiB");
    expect_error("{% set ns = namespace(a='x') %}{% for i in range(60) %}{% set ns.a = ns.a + ns.a %}{% endfor %}",
                 "needs more than 8 MiB");
    expect_error("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "nested more than 1000 deep");
    expect_error("{% for a in [1] recursive %}{{ loop([1]) }}{% endfor %}", "nested more than 1000 deep");
    expect_error("{{ 'a b'|replace('', 'x' * 1000000) * 9 }}", "needs more than 8 MiB");
    expect_error("{% for i in range(99999) %}{{ 'a' * 1000 }}{% endfor %}", "needs more than 8 MiB");
    const struct snug_jinja_input small = {.memory_most = 100}, smaller = {.memory_most = 8};
    struct snug_jinja_output out;
    char *text = nest("x", "", "", 101);
    assert_int_equal(render(text, 101, &small, &out), SNUG_E_INPUT);
    assert_string_equal(message(), "the template needs more than 0 MiB with this conversation");
    assert_int_equal(render("{{ 'x' * 999 }}", 15, &smaller, &out), SNUG_E_INPUT);
    assert_string_equal(message(), "the template needs more than 0 MiB with this conversation");
    free(text);
}

TEST(test_text_in_place_of_a_loop) { /* a string that grows at its end is not copied each time */
    static const char growing[] = "{% set ns = namespace(a='') %}{% for i in range(90000) %}{% set ns.a = ns.a + 'xyz' "
                                  "%}{% endfor %}{{ ns.a|length }}";
    const struct snug_jinja_input input = {.memory_most = 128 << 20};
    struct snug_jinja_output out;
    if (render(growing, sizeof growing - 1, &input, &out) != SNUG_OK) fail_msg("%s", snug_error_message(ctx));
    assert_string_equal(out.text, "270000");
    snug_jinja_output_free(&out);
}

TEST(test_templates_that_are_refused) {
    const struct snug_jinja_input input = {0};
    struct snug_jinja_template *template;
    struct snug_jinja_output out;
    char *large = malloc(SNUG_JINJA_TEMPLATE_MOST + 1);
    assert_non_null(large);
    memset(large, 'x', SNUG_JINJA_TEMPLATE_MOST + 1);
    assert_int_equal(render(large, SNUG_JINJA_TEMPLATE_MOST + 1, &input, &out), SNUG_E_INPUT);
    assert_non_null(strstr(snug_error_message(ctx), "at most 1048576 bytes"));
    assert_int_equal(render(large, SNUG_JINJA_TEMPLATE_MOST, &input, &out), SNUG_OK);
    snug_jinja_output_free(&out);
    free(large);
    assert_int_equal(render("a\xff", 2, &input, &out), SNUG_E_INPUT);
    assert_non_null(strstr(snug_error_message(ctx), "not UTF-8"));
    assert_int_equal(render("a\0b{{ 'c' }}", 12, &input, &out), SNUG_OK);
    assert_int_equal(out.length, 4);
    assert_memory_equal(out.text, "a\0bc", 5);
    snug_jinja_output_free(&out);
    assert_int_equal(snug_jinja_parse(ctx, "t", "{{ strftime_now('%Y') }}", 24, &template), SNUG_OK);
    assert_true(snug_jinja_has_date(template) && !snug_jinja_has_generation(template));
    snug_jinja_free(template);
    snug_jinja_free(NULL);
}

/* Tokens that end too early, and bytes that no tag has. */
TEST(test_odd_tokens) {
    static const char *const refused[] = {"{{ 1.",         "{{ 1e", "{{ 1ex }}", "{{ 1_",   "{{ 1_x }}",
                                          "{{ '\\x!1' }}", "{# #",  "{{ 'a\\",   "{{ $ }}", "{{ a.1.x"};
    static const char *const pairs[][2] = {{"{##}a", "a"},
                                           {"{{ '\\7' is string }}{{ '\\!' }}{{ '\\7 '|length }}", "True\\!2"},
                                           {"{% set é = 1 %}{{ é }}", "1"},
                                           {"{{ [1]|map(attribute='1234567890123456789012')|list }}", "[Undefined]"},
                                           {"{{ 'a'.find('', 1) }}{{ ''|length }}", "10"},
                                           {"{{ 'ab'.find('b', end=1) }}", "-1"}};
    const struct snug_jinja_input input = {.steps_most = 3000000, .memory_most = 8 << 20};
    struct snug_jinja_output out;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) expect_error(refused[i], "template:1: ");
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        if (render(pairs[i][0], strlen(pairs[i][0]), &input, &out) != SNUG_OK)
            fail_msg("%s: %s", pairs[i][0], snug_error_message(ctx));
        assert_string_equal(out.text, pairs[i][1]);
        snug_jinja_output_free(&out);
    }
    assert_int_equal(render("{{ \0 }}", 7, &input, &out), SNUG_E_INPUT);
    assert_int_equal(render("{{ '\\\0' }}", 10, &input, &out), SNUG_OK);
    snug_jinja_output_free(&out);
    expect_error("{% set t = 'x' * 100000 %}{% for i in range(900) %}{{ t }}{% endfor %}", "needs more than 8 MiB");
}

TEST(test_dates) { /* what strftime has for a time without a zone; other directives stay */
    static const char text[] =
        "{{ strftime_now('%z%Z|%f|%Q|%-H|%_d|%^a|%') }}{{ strftime_now('é%') }}{{ strftime_now('') }}{{ "
        "strftime_now('%é%-_0^d a') }}";
    const struct snug_jinja_input input = {
        .now = {.tm_year = 126, .tm_mon = 10, .tm_mday = 5, .tm_hour = 4, .tm_wday = 4}};
    struct snug_jinja_output out;
    if (render(text, sizeof text - 1, &input, &out) != SNUG_OK) fail_msg("%s", snug_error_message(ctx));
    assert_string_equal(out.text, "|000000|%Q|4| 5|THU|%é%%é%-_0^d a");
    snug_jinja_output_free(&out);
}

/* ---- for tools/golden/chat_templates.py ---- */

static void render_line(const char *line, size_t length) {
    json_error_t error;
    json_t *one = json_loadb(line, length, JSON_ALLOW_NUL, &error), *result;
    const json_t *template = json_object_get(one, "template"), *variables = json_object_get(one, "variables");
    const struct snug_jinja_input input = {
        .variables = &variables, .count = 1, .now = time_of(json_object_get(one, "now"))};
    struct snug_jinja_output out;
    if (render(json_string_value(template), json_string_length(template), &input, &out) == SNUG_OK) {
        json_t *spans = json_array();
        for (size_t i = 0; i < out.span_count; i++)
            json_array_append_new(spans,
                                  json_pack("[I,I]", (json_int_t)out.spans[i].begin, (json_int_t)out.spans[i].end));
        result = json_pack("{s:s%,s:o}", "text", out.text, out.length, "spans", spans);
    } else {
        result = json_pack("{s:s}", "error", snug_error_message(ctx));
    }
    json_dumpf(result, stdout, 0);
    putchar('\n');
    json_decref(result);
    json_decref(one);
    snug_jinja_output_free(&out);
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "render") == 0) {
        char *line = NULL;
        size_t capacity = 0;
        ssize_t length;
        set_up(NULL);
        while ((length = getline(&line, &capacity, stdin)) > 0) render_line(line, (size_t)length);
        free(line);
        return tear_down(NULL);
    }
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return run_registered(set_up, tear_down);
}
