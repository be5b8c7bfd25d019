/* SPDX-License-Identifier: Apache-2.0 */
/* Chats: rows in each layout, templates in each place, and what the assistant says in the text, with templates that
   mark it, that keep the text of the first messages, and that do not. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "data/chat.h"
#include "data/chat_file.h"
#include "folders.h"
#include "io/folder.h"
#include "io/json.h"
#include "model/family.h"
#include "sanitized.h"
#include "temporary.h"
#include "test.h"

#define FIXTURE struct fixture *f, set_up, tear_down

struct fixture {
    snug_context *ctx;
    char folder[64];
    struct snug_tokenizer *tokenizer;
    struct snug_chat *chat;
};

static void put(struct fixture *f, const char *name, const char *text) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", f->folder, name);
    if (!text) {
        remove(path);
        return;
    }
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, strlen(text), file), strlen(text));
    assert_int_equal(fclose(file), 0);
}

#define CONFIG                                                                                                         \
    "\"tokenizer_class\": \"BertTokenizer\", \"bos_token\": \"<s>\", \"eos_token\": {\"content\": \"</s>\"}, "         \
    "\"image_token\": \"<img>\""

static int set_up(void **state) {
    struct fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    assert_int_equal(snug_context_create(&f->ctx), SNUG_OK);
    assert_non_null(temporary_folder(f->folder, sizeof f->folder));
    put(f, "vocab.txt",
        "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nhi\nyes\nno\nthen\na\nb\nwhy\nuser\nsystem\nassistant\n:\n##s\n");
    put(f, "added_tokens.json",
        "{\"<|end|>\": 17, \"<|stop|>\": 18, \"<|user|>\": 19, \"<s>\": 20, \"</s>\": 21, \"<img>\": 22}");
    put(f, "tokenizer_config.json", "{" CONFIG "}");
    *state = f;
    return 0;
}

static void close_all(struct fixture *f) {
    snug_chat_close(f->chat);
    snug_tokenizer_free(f->tokenizer);
    f->chat = NULL;
    f->tokenizer = NULL;
}

static int tear_down(void **state) {
    struct fixture *f = *state;
    close_all(f);
    assert_int_equal(snug_folder_remove(f->ctx, NULL, f->folder), SNUG_OK);
    snug_context_destroy(f->ctx);
    free(f);
    return 0;
}

static snug_status open_chat(struct fixture *f, const char *path, const char *date) {
    close_all(f);
    snug_clear_error(f->ctx);
    if (snug_tokenizer_load(f->ctx, f->folder, snug_family_tokenizer_class, &f->tokenizer) != SNUG_OK)
        fail_msg("%s", snug_error_message(f->ctx));
    return snug_chat_open(f->ctx, f->tokenizer, path, date, &f->chat);
}

/* With this template as chat_template.jinja. */
static void use(struct fixture *f, const char *template) {
    put(f, "chat_template.jinja", template);
    if (open_chat(f, NULL, "2026-11-27") != SNUG_OK) fail_msg("%s", snug_error_message(f->ctx));
}

static snug_status read_row(struct fixture *f, const char *text, struct snug_chat_row *row) {
    json_error_t error;
    json_t *json = json_loads(text, 0, &error);
    if (!json) fail_msg("%s: %s", text, error.text);
    snug_clear_error(f->ctx);
    const snug_status status = snug_chat_row_read(f->ctx, "file:7", json, row);
    json_decref(json);
    return status;
}

static void expect_message(struct fixture *f, const char *expected) {
    if (!strstr(snug_error_message(f->ctx), expected))
        fail_msg("\"%s\", expected \"%s\"", snug_error_message(f->ctx), expected);
}

/* ---- rows ---- */

static const char printing[] =
    "{% for m in messages %}{{ m|tojson }}{% endfor %}{{ tools|tojson }}{{ documents|tojson }}{{ x }}";

static void expect_text(struct fixture *f, const char *row_text, const char *expected) {
    struct snug_chat_row row;
    struct snug_chat_text text;
    if (read_row(f, row_text, &row) != SNUG_OK || snug_chat_render(f->ctx, f->chat, "file:7", &row, &text) != SNUG_OK)
        fail_msg("%s: %s", row_text, snug_error_message(f->ctx));
    assert_string_equal(text.text, expected);
    assert_int_equal(text.length, strlen(expected));
    snug_chat_text_free(&text);
    snug_chat_row_free(&row);
}

FIXTURE_TEST(test_rows) {
    use(f, printing);
    expect_text(f, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\", \"name\": null}], \"conversations\": 1}",
                "{\"role\": \"user\", \"content\": \"a\"}nullnull");
    expect_text(f, "{\"conversations\": [{\"from\": \"human\", \"value\": \"a\", \"weight\": 1}], \"messages\": null}",
                "{\"role\": \"human\", \"content\": \"a\", \"weight\": 1}nullnull");
    expect_text(f, "{\"conversations\": [{\"from\": \"human\"}, {\"from\": \"gpt\"}, {\"weight\": 1}]}",
                "{\"role\": \"human\"}{\"role\": \"gpt\"}{\"weight\": 1}nullnull");
    expect_text(f, "{\"messages\": \"[{\\\"role\\\": \\\"user\\\"}]\"}", "{\"role\": \"user\"}nullnull");
    expect_text(f, "{\"conversations\": \"[{\\\"from\\\": \\\"gpt\\\"}]\"}", "{\"role\": \"gpt\"}nullnull");
    expect_text(f, "{\"instruction\": \"a\", \"output\": \"b\", \"history\": \"[[\\\"q\\\", \\\"r\\\"]]\"}",
                "{\"role\": \"user\", \"content\": \"q\"}{\"role\": \"assistant\", \"content\": \"r\"}{\"role\": "
                "\"user\", \"content\": \"a\"}{\"role\": \"assistant\", \"content\": \"b\"}nullnull");
    expect_text(f, "{\"instruction\": \"a\", \"input\": \"\", \"output\": \"b\"}",
                "{\"role\": \"user\", \"content\": \"a\"}{\"role\": \"assistant\", \"content\": \"b\"}nullnull");
    expect_text(f,
                "{\"instruction\": \"a\", \"input\": \"c\", \"output\": \"b\", \"system\": \"s\", \"history\": "
                "[[\"q\", \"r\"]]}",
                "{\"role\": \"system\", \"content\": \"s\"}{\"role\": \"user\", \"content\": \"q\"}{\"role\": "
                "\"assistant\", \"content\": \"r\"}"
                "{\"role\": \"user\", \"content\": \"a\\nc\"}{\"role\": \"assistant\", \"content\": \"b\"}nullnull");
    expect_text(f,
                "{\"messages\": [{\"role\": \"assistant\", \"reasoning\": \"r\"}], \"tools\": \"[{\\\"a\\\": 1}]\", "
                "\"documents\": [], \"chat_template_kwargs\": {\"x\": 5}}",
                "{\"role\": \"assistant\", \"reasoning\": \"r\", \"reasoning_content\": \"r\", \"thinking\": "
                "\"r\"}[{\"a\": 1}][]5");
    expect_text(f,
                "{\"messages\": [{\"role\": \"assistant\", \"thinking\": \"t\", \"reasoning_content\": \"r\"}], "
                "\"tools\": \"null\", \"chat_template_kwargs\": \"{\\\"x\\\": [1]}\"}",
                "{\"role\": \"assistant\", \"thinking\": \"t\", \"reasoning_content\": \"r\"}nullnull[1]");
}

FIXTURE_TEST(test_rows_that_are_refused) {
    static const char *const pairs[][2] = {
        {"{\"text\": \"a\"}", "file:7: no chat"},
        {"{\"messages\": \"a\"}", "file:7: \"messages\" must be a list"},
        {"{\"prompt\": [5], \"completion\": []}", "message 1 of \"prompt\" must be an object"},
        {"{\"prompt\": [{\"role\": \"user\"}], \"completion\": []}", "\"completion\" has no message"},
        {"{\"prompt\": [{\"role\": \"user\"}], \"completion\": \"a\"}", "file:7: no chat"},
        {"{\"prompt\": \"a\", \"completion\": []}", "file:7: no chat"},
        {"{\"messages\": \"[a\"}", "file:7: \"messages\" is not valid JSON"},
        {"{\"conversations\": \"[]\"}", "\"conversations\" has no message"},
        {"{\"instruction\": \"a\", \"output\": \"b\", \"history\": \"x\"}", "\"history\" is not valid JSON"},
        {"{\"messages\": []}", "\"messages\" has no message"},
        {"{\"messages\": [{\"role\": \"user\"}, 5]}", "message 2 of \"messages\" must be an object with \"role\""},
        {"{\"conversations\": [5]}", "message 1 of \"conversations\" must be an object with \"from\""},
        {"{\"instruction\": 5, \"output\": \"b\"}", "\"instruction\" must be a string"},
        {"{\"instruction\": \"a\", \"input\": 5, \"output\": \"b\"}", "\"input\" must be a string"},
        {"{\"instruction\": \"a\", \"output\": \"b\", \"history\": [[\"q\"]]}", "\"history\" must be a list of pairs"},
        {"{\"instruction\": \"a\", \"output\": \"b\", \"history\": [[5, \"a\"]]}",
         "\"history\" must be a list of pairs"},
        {"{\"instruction\": \"a\", \"output\": \"b\", \"history\": [[\"q\", 5]]}",
         "\"history\" must be a list of pairs"},
        {"{\"messages\": [{\"role\": \"user\"}], \"tools\": {}}", "\"tools\" must be a list"},
        {"{\"messages\": [{\"role\": \"user\"}], \"tools\": \"[1\"}", "\"tools\" is not valid JSON"},
        {"{\"messages\": [{\"role\": \"user\"}], \"documents\": \"5\"}", "\"documents\" must be a list"},
        {"{\"messages\": [{\"role\": \"user\"}], \"chat_template_kwargs\": []}",
         "\"chat_template_kwargs\" must be an object"},
    };
    struct snug_chat_row row;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        assert_int_equal(read_row(f, pairs[i][0], &row), SNUG_E_INPUT);
        expect_message(f, pairs[i][1]);
        assert_null(row.messages);
    }
}

/* A prompt and its completion are one chat, of which the prompt ends with the beginning of an answer. */
FIXTURE_TEST(test_prompts) {
    struct snug_chat_row row;
    struct snug_chat_text text;
    use(f, "{% for m in messages %}{{ m.role[0] ~ m.content }};{% endfor %}{% if add_generation_prompt %}a{% endif %}");
    assert_int_equal(
        read_row(f,
                 "{\"prompt\": \"[{\\\"role\\\": \\\"user\\\", \\\"content\\\": 1}]\", \"messages\": 5, "
                 "\"completion\": [{\"role\": \"assistant\", \"content\": 2}, {\"role\": \"gpt\", \"content\": 3}]}",
                 &row),
        SNUG_OK);
    assert_int_equal(row.prompt, 1);
    assert_true(row.other_roles);
    assert_int_equal(snug_chat_render(f->ctx, f->chat, "file:7", &row, &text), SNUG_OK);
    assert_string_equal(text.text, "u1;a2;g3;");
    snug_chat_text_free(&text);
    assert_int_equal(snug_chat_render_prompt(f->ctx, f->chat, "file:7", &row, &text), SNUG_OK);
    assert_string_equal(text.text, "u1;a");
    snug_chat_text_free(&text);
    snug_chat_row_free(&row);
}

FIXTURE_TEST(test_which_rows_are_chats) {
    static const char *const chats[] = {"{\"messages\": []}", "{\"conversations\": [1]}",
                                        "{\"instruction\": \"a\", \"output\": \"b\"}"};
    static const char *const others[] = {"{\"text\": \"a\"}", "{\"messages\": \"a\"}", "{\"instruction\": \"a\"}",
                                         "{\"instruction\": 1, \"output\": \"\"}"};
    for (size_t i = 0; i < 3; i++) {
        json_t *row = json_loads(chats[i], 0, NULL);
        assert_true(snug_chat_is_row(row));
        json_decref(row);
    }
    for (size_t i = 0; i < 4; i++) {
        json_t *row = json_loads(others[i], 0, NULL);
        assert_false(snug_chat_is_row(row));
        json_decref(row);
    }
}

/* ---- where a template is ---- */

static const char one_message[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}";
static const char with_tools[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"tools\": []}";

FIXTURE_TEST(test_places_of_templates) {
    char path[256], templates[256];
    snprintf(path, sizeof path, "%s/other.txt", f->folder);
    assert_int_equal(open_chat(f, NULL, NULL), SNUG_E_INPUT);
    expect_message(f, "has no chat template");
    put(f, "chat_template.json", "{\"chat_template\": \"J\"}");
    assert_int_equal(open_chat(f, NULL, NULL), SNUG_OK);
    expect_text(f, one_message, "J");
    put(f, "tokenizer_config.json",
        "{" CONFIG ", \"chat_template\": \"C{{ bos_token }}{{ eos_token }}{{ image_token }}{{ pad_token }}{{ sep_token "
        "}}{{ z }}\"}");
    assert_int_equal(open_chat(f, NULL, NULL), SNUG_OK);
    expect_text(f, one_message, "C<s></s><img>[PAD][SEP]");
    const uint64_t before = snug_chat_fingerprint(f->chat);
    put(f, "tokenizer_config.json",
        "{" CONFIG ", \"chat_template\": [{\"template\": \"N\"}, {\"name\": \"default\", \"template\": \"D\"}, "
        "{\"name\": \"tool_use\", "
        "\"template\": \"T\"}, {\"name\": \"rag\", \"template\": \"{{\"}]}");
    assert_int_equal(open_chat(f, NULL, NULL), SNUG_OK);
    expect_text(f, one_message, "D");
    expect_text(f, with_tools, "T");
    assert_true(snug_chat_fingerprint(f->chat) != before);
    put(f, "tokenizer_config.json", "{" CONFIG ", \"chat_template\": {\"default\": \"E\"}}");
    assert_int_equal(open_chat(f, NULL, NULL), SNUG_OK);
    expect_text(f, with_tools, "E");
    put(f, "chat_template.jinja", "F");
    assert_int_equal(open_chat(f, NULL, NULL), SNUG_OK);
    expect_text(f, one_message, "F");
    snprintf(templates, sizeof templates, "%s/additional_chat_templates", f->folder);
    assert_int_equal(mkdir(templates, 0777), 0);
    put(f, "additional_chat_templates/tool_use.jinja", "U");
    for (int saved = 0; saved < 3;
         saved++) { /* where it is saved they are in tokenizer_config.json, if there was one */
        struct snug_folder folder;
        assert_int_equal(open_chat(f, NULL, NULL), SNUG_OK);
        expect_text(f, one_message, "F");
        expect_text(f, with_tools, "U");
        assert_int_equal(snug_folder_open(f->ctx, NULL, f->folder, &folder), SNUG_OK);
        assert_int_equal(snug_tokenizer_save(f->ctx, f->tokenizer, &folder), SNUG_OK);
        snug_folder_close(&folder);
        put(f, "chat_template.jinja", saved == 1 ? "F" : NULL);
        put(f, "additional_chat_templates/tool_use.jinja", saved == 1 ? "U" : NULL);
        if (saved == 1) put(f, "tokenizer_config.json", NULL);
    }
    put(f, "other.txt", "G");
    assert_int_equal(open_chat(f, path, NULL), SNUG_OK);
    expect_text(f, one_message, "G");
    assert_int_equal(open_chat(f, "/nowhere", NULL), SNUG_E_IO);
    put(f, "other.txt", "\n{% if %}");
    assert_int_equal(open_chat(f, path, NULL), SNUG_E_INPUT);
    expect_message(f, "other.txt:2: Expected an expression");
    put(f, "chat_template.jinja", NULL);
    put(f, "tokenizer_config.json",
        "{" CONFIG
        ", \"chat_template\": [{\"name\": \"rag\", \"template\": \"R\"}, {\"name\": \"default\", \"template\": 5}]}");
    assert_int_equal(open_chat(f, NULL, NULL), SNUG_E_INPUT);
    expect_message(f, "tokenizer_config.json: \"chat_template\" must be a text");
    put(f, "chat_template.json", "{");
    put(f, "tokenizer_config.json", "{" CONFIG ", \"chat_template\": null}");
    assert_int_equal(open_chat(f, NULL, NULL), SNUG_E_INPUT);
    expect_message(f, "chat_template.json:1: not valid JSON");
}

FIXTURE_TEST(test_the_model_keeps_its_template) { /* a trained model's folder has it, too */
    char copy[300], path[400], *text;
    size_t size;
    use(f, "A{{ 1 }}");
    snprintf(copy, sizeof copy, "%s/copy", f->folder);
    struct snug_folder out;
    assert_int_equal(snug_folder_make(f->ctx, NULL, copy, 0600, &out), SNUG_OK);
    assert_int_equal(snug_tokenizer_save(f->ctx, f->tokenizer, &out), SNUG_OK);
    snug_folder_close(&out);
    snprintf(path, sizeof path, "%s/chat_template.jinja", copy);
    assert_int_equal(snug_file_read(f->ctx, NULL, path, &text, &size), SNUG_OK);
    assert_string_equal(text, "A{{ 1 }}");
    free(text);
}

FIXTURE_TEST(test_dates) {
    static const char *const bad[] = {"",
                                      "2026-11",
                                      "2026-13-01",
                                      "2026-02-30",
                                      "2026/11/27",
                                      "2026-11-27 08:30:00",
                                      "2026-11-27T25:00:00",
                                      "2026-11-27T08:61:00",
                                      "2026-11-27T08-30:00",
                                      "20x6-11-27",
                                      "1850-01-01",
                                      "2026-11-00",
                                      "2026-11-27T08:30:6x",
                                      "2026-11-27T08:30-00",
                                      "2026-11/27",
                                      "2026- 1-27"};
    use(f, "{{ strftime_now('%d %b %Y %H:%M %a') }}");
    expect_text(f, one_message, "27 Nov 2026 00:00 Fri");
    assert_string_equal(snug_chat_date(f->chat), "2026-11-27T00:00:00");
    const uint64_t before = snug_chat_fingerprint(f->chat);
    assert_int_equal(open_chat(f, NULL, "2024-02-29T08:30:59"), SNUG_OK);
    expect_text(f, one_message, "29 Feb 2024 08:30 Thu");
    assert_true(snug_chat_fingerprint(f->chat) != before);
    assert_int_equal(open_chat(f, NULL, NULL), SNUG_OK);
    assert_int_equal(strlen(snug_chat_date(f->chat)), 19);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(open_chat(f, NULL, bad[i]), SNUG_E_USAGE);
        expect_message(f, "--chat_template_date");
    }
    use(f, "no date");
    assert_null(snug_chat_date(f->chat));
    put(f, "chat_template.jinja", NULL);
    put(f, "tokenizer_config.json",
        "{" CONFIG ", \"chat_template\": {\"default\": \"a\", \"tool_use\": \"{{ strftime_now('%Y') }}\"}}");
    assert_int_equal(open_chat(f, NULL, "2024-02-29"), SNUG_OK);
    assert_non_null(snug_chat_date(f->chat));
    expect_text(f, with_tools, "2024");
}

FIXTURE_TEST(test_an_error_of_the_template) {
    struct snug_chat_row row;
    struct snug_chat_text text;
    use(f, "a\n{{ raise_exception('Only ' ~ messages|length) }}");
    assert_int_equal(read_row(f, one_message, &row), SNUG_OK);
    assert_int_equal(snug_chat_render(f->ctx, f->chat, "file:7", &row, &text), SNUG_E_INPUT);
    expect_message(f, "chat_template.jinja:2: Only 1 (the chat of file:7)");
    snug_clear_error(f->ctx);
    assert_int_equal(snug_chat_spans(f->ctx, f->chat, "file:7", &row, &text), SNUG_E_INPUT);
    expect_message(f, "chat_template.jinja:2: Only 1 (the chat of file:7)");
    assert_null(text.text);
    snug_chat_row_free(&row);
}

/* ---- what the assistant says ---- */

#define USER(text) "{\"role\": \"user\", \"content\": \"" text "\"}"
#define ASSISTANT(text) "{\"role\": \"assistant\", \"content\": \"" text "\"}"
#define CALL                                                                                                           \
    "{\"role\": \"assistant\", \"content\": \"\", \"tool_calls\": [{\"function\": {\"name\": \"add\", \"arguments\": " \
    "{\"a\": 1}}}, {\"name\": \"flat\"}]}"
#define FLAT_CALL "{\"role\": \"assistant\", \"tool_calls\": [{\"name\": \"flat\"}]}"
#define TALKING_CALL(content)                                                                                          \
    "{\"role\": \"assistant\", \"content\": " content ", \"tool_calls\": [{\"name\": \"flat\"}]}"
#define ROW(messages) "{\"messages\": [" messages "]}"

/* Writes the text with what has a loss in brackets. */
static char *marked(const struct snug_chat_text *text) {
    char *out = malloc(text->length + 2 * text->span_count + 1), *to = out;
    size_t done = 0;
    assert_non_null(out);
    for (size_t i = 0; i < text->span_count; i++) {
        const struct snug_jinja_span span = text->spans[i];
        assert_true(span.begin >= done && span.begin < span.end && span.end <= text->length);
        to = stpncpy(to, text->text + done, span.begin - done);
        *to++ = '[';
        to = stpncpy(to, text->text + span.begin, span.end - span.begin);
        *to++ = ']';
        done = span.end;
    }
    strcpy(to, text->text + done);
    return out;
}

static void expect_spans(struct fixture *f, const char *row_text, const char *expected) {
    struct snug_chat_row row;
    struct snug_chat_text text;
    assert_int_equal(read_row(f, row_text, &row), SNUG_OK);
    const snug_status status = snug_chat_spans(f->ctx, f->chat, "file:7", &row, &text);
    if (status != SNUG_OK) {
        if (!strstr(snug_error_message(f->ctx), expected))
            fail_msg("%s: \"%s\", expected \"%s\"", row_text, snug_error_message(f->ctx), expected);
    } else {
        char *out = marked(&text);
        assert_string_equal(out, expected);
        free(out);
        snug_chat_text_free(&text);
    }
    snug_chat_row_free(&row);
}

static const char two_turns[] = ROW(USER("hi") "," ASSISTANT("yes") "," USER("why") "," ASSISTANT("no"));

FIXTURE_TEST(test_templates_that_keep_the_first_messages) {
    use(f, "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content|trim }}<|end|>\n{% endfor %}{% if "
           "add_generation_prompt %}assistant: {% endif %}");
    expect_spans(f, two_turns,
                 "<s>user: hi<|end|>\nassistant: [yes<|end|>\n]user: why<|end|>\nassistant: [no<|end|>\n]");
    expect_spans(f, ROW(USER("hi")), "<s>user: hi<|end|>\n");
    expect_spans(f, ROW(USER("hi") "," ASSISTANT(" yes ") "," ASSISTANT("no")),
                 "<s>user: hi<|end|>\nassistant: [yes<|end|>\n]assistant: [no<|end|>\n]");
    expect_spans(f, ROW(ASSISTANT("yes") "," USER("hi")), "<s>assistant: [yes<|end|>\n]user: hi<|end|>\n");
    expect_spans(f, ROW(USER("hi") "," ASSISTANT("")), "<s>user: hi<|end|>\nassistant: [<|end|>\n]");
    expect_spans(f, ROW(USER("assistant: yes<|end|>") "," ASSISTANT("yes<|end|>\\nassistant: ")),
                 "<s>user: assistant: yes<|end|><|end|>\nassistant: [yes<|end|>\nassistant:<|end|>\n]");
}

FIXTURE_TEST(test_marked_templates) {
    use(f, "{% for m in messages %}{{ m.role }}:{% if m.role == 'assistant' %}{% generation %}{{ m.content }}<|end|>{% "
           "endgeneration %}{% else %}{{ m.content }}{% endif %}\n{% endfor %}");
    expect_spans(f, two_turns, "user:hiassistant:[yes<|end|>]user:whyassistant:[no<|end|>]");
    use(f, "{% generation %}{% endgeneration %}{% for m in messages %}{% generation %}{{ m.content }}{% generation "
           "%}x{% endgeneration %}{% endgeneration %}{% endfor %}");
    expect_spans(f, ROW(USER("hi") "," ASSISTANT("yes")), "[hixyesx]");
    use(f, "{% set t %}{% generation %}not written{% endgeneration %}{% endset %}a");
    expect_spans(f, two_turns, "[a]");
    use(f, "a{% if false %}{% generation %}{% endgeneration %}{% endif %}");
    expect_spans(f, two_turns, "a");
}

FIXTURE_TEST(test_an_end_of_the_text) { /* which follows the last message, as Phi-3's */
    use(f, "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}{% if add_generation_prompt "
           "%}<|assistant|>{% else %}<|stop|>{% endif %}");
    expect_spans(f, two_turns,
                 "<|user|>hi<|end|><|assistant|>[yes<|end|>]<|user|>why<|end|><|assistant|>[no<|end|><|stop|>]");
    /* another end token in the last message, as gpt-oss's */
    use(f, "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% if loop.last and m.role == 'assistant' and not "
           "add_generation_prompt %}<|stop|>{% else %}<|end|>{% endif %}{% endfor %}{% if add_generation_prompt "
           "%}<|assistant|>{% endif %}");
    expect_spans(f, two_turns, "<|user|>hi<|end|><|assistant|>[yes<|end|>]<|user|>why<|end|><|assistant|>[no<|stop|>]");
}

static const char thinking[] =
    "{% for m in messages %}{{ m.role }}:{% if m.role == 'assistant' and loop.last %}<think>{{ m.reasoning_content "
    "}}</think>{% endif %}{{ m.content }}<|end|>{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}";

FIXTURE_TEST(test_reasoning_that_later_messages_remove) {
    use(f, thinking);
    expect_spans(f, two_turns,
                 "user:hi<|end|>assistant:[yes<|end|>]user:why<|end|>assistant:[<think></think>no<|end|>]");
    expect_spans(f,
                 ROW(USER("hi") ",{\"role\": \"assistant\", \"content\": \"yes\", \"reasoning_content\": \"so\"}," USER(
                     "why") ",{\"role\": \"assistant\", \"content\": \"no\", \"reasoning_content\": \"as\"}"),
                 "user:hi<|end|>assistant:[yes<|end|>]user:why<|end|>assistant:[<think>as</think>no<|end|>]");
    /* a prompt that has more than what is written later */
    use(f, "{% for m in messages %}{{ m.role }}:{{ m.content.split('</think>')[-1] }}<|end|>{% endfor %}{% if "
           "add_generation_prompt %}assistant:<think>{% endif %}");
    expect_spans(f, ROW(USER("hi") "," ASSISTANT("<think>so</think>yes") "," USER("why") "," ASSISTANT("no")),
                 "user:hi<|end|>assistant:[yes<|end|>]user:why<|end|>assistant:[no<|end|>]");
}

FIXTURE_TEST(test_tools_without_content) {
    static const char calling[] =
        "{% for m in messages %}{{ m.role }}:{% if m.role == 'assistant' and loop.last %}<think></think>{% endif %}{{ "
        "m.content }}{% if m.content and m.tool_calls %}, {% endif %}{% for c in m.tool_calls or [] %}<{{ (c.function "
        "or c).name }}>{% endfor %}<|end|>{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}";
    use(f, calling);
    expect_spans(f, ROW(USER("hi") "," CALL "," USER("why") "," ASSISTANT("no")),
                 "user:hi<|end|>assistant:[<add><flat><|end|>]user:why<|end|>assistant:[<think></think>no<|end|>]");
    expect_spans(f, ROW(USER("hi") "," FLAT_CALL "," USER("why")),
                 "user:hi<|end|>assistant:[<flat><|end|>]user:why<|end|>");
    expect_spans(f, ROW(USER("hi") "," TALKING_CALL("\"yes\"") "," USER("why")),
                 "user:hi<|end|>assistant:[yes, <flat><|end|>]user:why<|end|>");
    expect_spans(f, ROW(USER("hi") "," TALKING_CALL("[5]") "," USER("why")),
                 "user:hi<|end|>assistant:[[5], <flat><|end|>]user:why<|end|>");
    /* tools that the template does not write: the content, which is empty, is replaced */
    use(f, "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}<|stop|>");
    expect_spans(f, ROW(USER("hi") "," CALL "," USER("why")),
                 "<|user|>hi<|end|><|assistant|>[<|end|>]<|user|>why<|end|><|stop|>");
}

FIXTURE_TEST(test_what_cannot_be_derived) {
    /* the number of messages is in the text before and after */
    use(f, "{{ messages|length }}{% for m in messages %}{{ m.role }}:{{ m.content|upper }};{% endfor %}");
    expect_spans(f, two_turns, "file:7: the beginning of the assistant's message 2 cannot be found");
    use(f, "{% for m in messages %}{{ m.role }}:{{ m.content|upper }};{% endfor %}{{ messages|length }}{% if "
           "add_generation_prompt %}assistant:{% endif %}");
    expect_spans(f, two_turns, "the beginning of the assistant's message 2 cannot be found");
    use(f, "{% for m in messages %}{{ m.role }}:{% if not add_generation_prompt or not loop.last %}{{ m.content|upper "
           "}}{% endif %};{% endfor %}");
    expect_spans(f, two_turns, "cannot be found");
    use(f, "{% for m in messages %}{{ m.role }}:{{ m.content|length if loop.last else m.content|upper }};{% endfor "
           "%}{% if add_generation_prompt %}assistant:{% endif %}");
    expect_spans(f, ROW(USER("hi") "," ASSISTANT("yes") "," USER("why") "," ASSISTANT("no")), "--chat_template_path");
    /* its prefixes are refused, but its place is known */
    use(f, "{% if messages|length % 2 %}{{ raise_exception('odd') }}{% endif %}{% for m in messages %}{{ m.role }}:{{ "
           "m.content }};{% endfor %}");
    expect_spans(f, two_turns, "user:hi;assistant:[yes;]user:why;assistant:[no;]");
    use(f, "{% if messages|length < 4 %}{{ raise_exception('few') }}{% endif %}{% for m in messages %}{{ m.role }}:{{ "
           "m.content }};{% endfor %}");
    expect_spans(f, two_turns, "the end of the assistant's message 2 cannot be found");
    /* the order is another one */
    use(f, "{% for m in messages|reverse %}{{ m.role }}:{{ m.content }};{% endfor %}");
    expect_spans(f, two_turns, "cannot be found");
}

/* Templates whose text around a message depends on its content, or on which message is the last. */
FIXTURE_TEST(test_text_that_depends_on_the_content) {
    static const char prompted[] =
        "{% for m in messages %}{{ m.role }}:{{ m.content }};{% if m.role == 'assistant' and loop.last %}!{% endif "
        "%}{% endfor %}{% if add_generation_prompt and messages[-1].role == 'user' %}assistant";
    static const struct {
        const char *template, *expected;
    } cases[] = {
        {"{% for m in messages %}{% if m.role == 'user' %}{{ m.content }};{% endif %}{% endfor %}", "hi;why;"},
        {"{% for m in messages %}{% if m.role == 'user' or not loop.last %}{{ m.role }}:{{ m.content }};{% endif %}{% "
         "endfor %}{% if add_generation_prompt %}assistant:{% endif %}",
         "the end of the assistant's message 2 cannot be found"},
        {"{{ messages|length }}{% for m in messages %}{% if m.content|length > 5 %}{{ raise_exception('long') }}{% "
         "endif "
         "%}{{ m.role }}:{{ m.content }};{% endfor %}",
         "the beginning of the assistant's message 2 cannot be found"},
        {"{{ messages|length }}{% for m in messages %}{{ m.role }}:{{ m.content[:5] }};{% endfor %}",
         "the beginning of the assistant's message 2 cannot be found"},
        {"{% for m in messages %}{{ m.role }}{{ m.content|length > 4 }}:{{ m.content }};{% endfor %}{% if "
         "add_generation_prompt %}assistant:{% endif %}",
         "the beginning of the assistant's message 2 cannot be found"},
        {"{% for m in messages %}{{ m.role }}:{{ m.content }}{{ m.content|length > 4 }};{% if m.role == 'assistant' "
         "and "
         "loop.last %}!{% endif %}{% endfor %}",
         "the end of the assistant's message 2 cannot be found"},
        {"{% if messages[-1].role == 'user' and not add_generation_prompt %}{{ raise_exception('no') }}{% endif %}{% "
         "for "
         "m in messages %}{{ m.role }}:{{ m.content }};{% if m.role == 'assistant' and loop.last %}!{% endif %}{% "
         "endfor "
         "%}",
         "user:hi;[assistant:yes;]user:why;[assistant:no;!]"},
        {"{% for m in messages %}{{ m.role }}:{{ m.content }};{% if m.role == 'assistant' and loop.last %}<|x{% else "
         "%}<|end|>{% endif %}{% endfor %}",
         "user:hi;<|end|>[assistant:yes;]<|end|>user:why;<|end|>[assistant:no;<|x]"},
    };
    static const char *const prompts[] = {":", " is asked to write a very long and detailed answer now:"};
    char template[512];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        use(f, cases[i].template);
        expect_spans(f, two_turns, cases[i].expected);
    }
    for (size_t i = 0; i < 2; i++) {
        snprintf(template, sizeof template, "%s%s{%% endif %%}", prompted, prompts[i]);
        use(f, template);
        expect_spans(f, two_turns, "user:hi;assistant:[yes;]user:why;assistant:[no;!]");
    }
    use(f, "{% for m in messages %}{{ m.content }};{% endfor %}");
    expect_spans(f, ROW("{\"content\": \"a\"}," ASSISTANT("yes")), "a;[yes;]");
}

/* Released templates in $SNUG_MODELS whose training variants of TRL mark the assistant's text: ours ends where theirs
   does, and begins there or after it, where theirs marks what a generation prompt has. */
static void compare_pair(struct fixture *f, const char *folder, const char *name, const json_t *conversations,
                         size_t *compared) {
    char paths[2][1024];
    json_t *conversation;
    size_t i;
    snprintf(paths[0], sizeof paths[0], "%s/%s.jinja", folder, name);
    snprintf(paths[1], sizeof paths[1], "%s/%s_training.jinja", folder, name);
    json_array_foreach(conversations, i, conversation) {
        struct snug_chat_row row = {.messages = conversation};
        struct snug_chat_text texts[2] = {{0}};
        snug_status status = SNUG_OK;
        for (int k = 0; k < 2 && status == SNUG_OK; k++) {
            if (open_chat(f, paths[k], "2026-11-27") != SNUG_OK) fail_msg("%s", snug_error_message(f->ctx));
            status = snug_chat_spans(f->ctx, f->chat, name, &row, &texts[k]);
        }
        if (status == SNUG_OK && strcmp(texts[0].text, texts[1].text) == 0) {
            ++*compared;
            if (texts[0].span_count != texts[1].span_count) fail_msg("%s: %zu spans", paths[0], texts[0].span_count);
            for (size_t k = 0; k < texts[0].span_count; k++)
                if (texts[0].spans[k].begin < texts[1].spans[k].begin || texts[0].spans[k].end != texts[1].spans[k].end)
                    fail_msg("%s, conversation %zu: span %zu", paths[0], i, k);
        }
        snug_chat_text_free(&texts[0]);
        snug_chat_text_free(&texts[1]);
    }
}

FIXTURE_TEST(test_released_templates) {
    static const char *const names[] = {"cohere",     "deepseek_r1_distill",
                                        "deepseekv3", "gemma",
                                        "gemma3",     "gptoss",
                                        "llama3",     "phi3",
                                        "phi3_5",     "qwen2_5",
                                        "qwen3",      "qwen3_6",
                                        "qwen3_8",    "qwen3_instruct_2507",
                                        "smolvlm",    "nemotron_3_nano"};
    const char *models = getenv("SNUG_MODELS");
    char folder[512];
    json_t *golden;
    size_t compared = 0;
    if (!models) {
        print_message("skipped: SNUG_MODELS names no folder with chat templates\n");
        skip();
    }
    put(f, "added_tokens.json", "{\"<|end|>\": 17, \"<|return|>\": 18, \"<|endoftext|>\": 19, \"<|user|>\": 20}");
    snprintf(folder, sizeof folder, "%s/tokenizers/templates/trl", models);
    assert_int_equal(snug_json_read(f->ctx, NULL, SNUG_SOURCE_DIR "/tests/golden/chat_templates.json", &golden),
                     SNUG_OK);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        compare_pair(f, folder, names[i], json_object_get(golden, "conversations"), &compared);
    assert_true(compared > 150);
    json_decref(golden);
}

/* ---- files ---- */

/* Writes where each row is, and its member x. */
static void expect_rows(struct fixture *f, const char *text, const char *expected) {
    char path[256], out[1024] = "";
    struct snug_chat_file *file;
    const char *where;
    json_t *row;
    snug_status status;
    put(f, "rows.jsonl", text);
    snprintf(path, sizeof path, "%s/rows.jsonl", f->folder);
    snug_clear_error(f->ctx);
    status = snug_chat_file_open(f->ctx, path, &file);
    while (status == SNUG_OK && (status = snug_chat_file_next(file, &row, &where)) == SNUG_OK) {
        const size_t used = strlen(out);
        snprintf(out + used, sizeof out - used, "%s=%lld;", where + strlen(path),
                 (long long)json_integer_value(json_object_get(row, "x")));
        json_decref(row);
    }
    snug_chat_file_close(file);
    if (status != SNUG_END) {
        assert_int_equal(status, SNUG_E_INPUT);
        expect_message(f, expected);
        return;
    }
    assert_string_equal(out, expected);
}

FIXTURE_TEST(test_files) {
    char *large = malloc(400000), *to = large;
    struct snug_chat_file *file;
    assert_non_null(large);
    expect_rows(f, "", "");
    expect_rows(f, "{\"x\": 1}\n\n \t\r\n{\"x\": 2}", ":1=1;:4=2;");
    expect_rows(f, "\xef\xbb\xbf{\"x\": 1}\n", ":1=1;");
    expect_rows(f, "\n [{\"x\": 1},\n {\"x\": 2}]\n", ", row 1=1;, row 2=2;");
    expect_rows(f, "[]", "");
    expect_rows(f, "{\"x\": 1}\n5\n", "rows.jsonl:2: a row must be an object");
    expect_rows(f, "{\"x\": 1}\n{\"x\": }\n", "rows.jsonl:2: not valid JSON (column 7)");
    expect_rows(f, "[{\"x\": 1}, 5]", "rows.jsonl, row 2: a row must be an object");
    expect_rows(f, "[{\"x\": 1},\n5", "rows.jsonl:2: not valid JSON");
    expect_rows(f, " {\"x\": 1}", ":1=1;");
    for (int i = 0; i < 2; i++) { /* lines longer than what is read at once */
        to += sprintf(to, "{\"t\": \"");
        memset(to, 'a' + i, 150000);
        to += 150000;
        to += sprintf(to, "\", \"x\": %d}\n", i);
    }
    expect_rows(f, large, ":1=0;:2=1;");
    free(large);
    snug_clear_error(f->ctx);
    assert_int_equal(snug_chat_file_open(f->ctx, "/nowhere/rows.jsonl", &file), SNUG_E_IO);
    assert_null(file);
}

/* ---- tokens ---- */

FIXTURE_TEST(test_tokens) {
    static const int32_t expected[] = {12, 15, 5, 17, 14, 15, 6, 17, 12, 15, 11, 17, 14, 15, 7, 17};
    static const int32_t losses[] = {0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 1, 1};
    struct snug_ids ids = {0}, has_loss = {0}, part = {0};
    struct snug_chat_row row;
    struct snug_chat_text text;
    use(f, "{% for m in messages %}{{ m.role }}: {{ m.content }}<|end|>{% endfor %}{% if add_generation_prompt "
           "%}assistant: {% endif %}");
    assert_int_equal(read_row(f, two_turns, &row), SNUG_OK);
    assert_int_equal(snug_chat_spans(f->ctx, f->chat, "file:7", &row, &text), SNUG_OK);
    assert_int_equal(snug_chat_tokens(f->ctx, f->tokenizer, &text, &part, &ids, &has_loss), SNUG_OK);
    assert_int_equal(ids.count, 16);
    assert_int_equal(has_loss.count, 16);
    assert_memory_equal(ids.ids, expected, sizeof expected);
    assert_memory_equal(has_loss.ids, losses, sizeof losses);
    snug_chat_text_free(&text);
    snug_chat_row_free(&row);
    /* a token that crosses the border of a span has a loss */
    struct snug_jinja_span inside = {1, 2};
    const struct snug_chat_text crossed = {
        .text = (char *)(uintptr_t) "why no", .length = 6, .spans = &inside, .span_count = 1};
    ids.count = has_loss.count = 0;
    assert_int_equal(snug_chat_tokens(f->ctx, f->tokenizer, &crossed, &part, &ids, &has_loss), SNUG_OK);
    assert_int_equal(has_loss.count, 2);
    assert_true(has_loss.ids[0] && !has_loss.ids[1]);
    /* the beginning of a token alone has more tokens than the whole */
    const struct snug_chat_text cut = {
        .text = (char *)(uintptr_t) "[UNK]", .length = 5, .spans = &inside, .span_count = 1};
    ids.count = has_loss.count = 0;
    assert_int_equal(snug_chat_tokens(f->ctx, f->tokenizer, &cut, &part, &ids, &has_loss), SNUG_OK);
    assert_int_equal(has_loss.count, 1);
    free(ids.ids);
    free(has_loss.ids);
    free(part.ids);
}

/* The tokens of a span are those between two beginnings of the text, wherever the spans begin and end: in and around
   added tokens, in words, without any. */
FIXTURE_TEST(test_tokens_of_any_spans) {
    static const char *const texts[] = {"why<|end|>no<|end|>why no<|end|>", "why no why no", "<|end|><|end|>why<|end|",
                                        "a[SEP] b <|end|>[UNK][SEP]no<|end|>why", "no[UNK]<|end|>[UNK]"};
    struct snug_ids ids = {0}, has_loss = {0}, part = {0}, before = {0}, after = {0};
    use(f, "{{ messages }}");
    for (size_t t = 0; t < sizeof texts / sizeof *texts; t++)
        for (size_t begin = 0; begin < strlen(texts[t]); begin++)
            for (size_t end = begin + 1; end <= strlen(texts[t]); end++) {
                struct snug_jinja_span spans[] = {{begin, end}, {strlen(texts[t]), strlen(texts[t])}};
                const struct snug_chat_text text = {
                    .text = (char *)(uintptr_t)texts[t], .length = strlen(texts[t]), .spans = spans, .span_count = 2};
                ids.count = has_loss.count = before.count = after.count = 0;
                assert_int_equal(snug_chat_tokens(f->ctx, f->tokenizer, &text, &part, &ids, &has_loss), SNUG_OK);
                assert_int_equal(has_loss.count, ids.count);
                assert_int_equal(snug_tokenizer_encode(f->ctx, f->tokenizer, texts[t], begin, &before), SNUG_OK);
                assert_int_equal(snug_tokenizer_encode(f->ctx, f->tokenizer, texts[t], end, &after), SNUG_OK);
                size_t first = 0, last = 0;
                while (first < before.count && first < ids.count && before.ids[first] == ids.ids[first]) first++;
                while (last < after.count && last < ids.count && after.ids[last] == ids.ids[last]) last++;
                last += last < after.count && last < ids.count;
                for (size_t i = 0; i < ids.count; i++)
                    if (has_loss.ids[i] != (i >= first && i < last))
                        fail_msg("\"%s\", bytes %zu to %zu: token %zu", texts[t], begin, end, i);
            }
    free(ids.ids);
    free(has_loss.ids);
    free(part.ids);
    free(before.ids);
    free(after.ids);
}

/* A chat of many turns takes time in proportion to its length. */
FIXTURE_TEST(test_many_turns) {
    enum { TURNS = 20000, TURN = 12 };
    static char long_text[TURNS * TURN + 1];
    struct snug_jinja_span *spans = malloc(TURNS * sizeof *spans);
    struct snug_ids ids = {0}, has_loss = {0}, part = {0};
    assert_non_null(spans);
    use(f, "{{ messages }}");
    for (size_t i = 0; i < TURNS; i++) {
        memcpy(long_text + i * TURN, "why no[SEP]\n", TURN);
        spans[i] = (struct snug_jinja_span){i * TURN + 4, i * TURN + 11};
    }
    const struct snug_chat_text text = {
        .text = long_text, .length = sizeof long_text - 1, .spans = spans, .span_count = TURNS};
    const double begin = snug_seconds();
    assert_int_equal(snug_chat_tokens(f->ctx, f->tokenizer, &text, &part, &ids, &has_loss), SNUG_OK);
    if (!SANITIZED && snug_seconds() - begin > 10) fail_msg("%.1f s", snug_seconds() - begin);
    assert_int_equal(ids.count, 3 * TURNS);
    for (size_t i = 0; i < ids.count; i++) assert_int_equal(has_loss.ids[i], i % 3 != 0);
    free(spans);
    free(ids.ids);
    free(has_loss.ids);
    free(part.ids);
}

TEST_MAIN(NULL, NULL)
