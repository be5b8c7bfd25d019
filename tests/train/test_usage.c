/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Wrong use of snug.h is refused by the name of the function and of the argument: each function of the header is called
 * with NULL for each of its pointers in turn, and a loop's calls in orders that make no sense.
 */
#include <ctype.h>
#include <math.h>

#include "training_fixture.h"

#define FIXTURE struct fixture *f, set_up, tear_down

static void fails(const struct fixture *f, snug_status found, const char *says) {
    if (found != SNUG_E_USAGE) fail_msg("status %d: %s", found, snug_error_message(f->ctx));
    assert_contains(snug_error_message(f->ctx), says);
}

/* ---- the header ------------------------------------------------------------------------------------------------ */

enum { FUNCTIONS_MOST = 128, PARAMETERS_MOST = 8 };

struct function {
    char name[48];
    int count;
    struct parameter {
        char name[32];
        bool pointer, out; /* out: T **, where what is made is stored */
    } parameters[PARAMETERS_MOST];
};

/* The header's declarations: without comments, directives and what is for C++ alone. */
static char *read_header(struct fixture *f) {
    char *text = read_text(f, SNUG_SOURCE_DIR "/include/snug.h", NULL), *to = text;
    bool cplusplus = false;
    for (char *at = text; *at;) {
        if (strncmp(at, "/*", 2) == 0) {
            at = strstr(at, "*/") + 2;
        } else if (*at == '#' && (at == text || at[-1] == '\n')) {
            if (strncmp(at, "#ifdef __cplusplus", 18) == 0) cplusplus = true;
            if (strncmp(at, "#endif", 6) == 0) cplusplus = false;
            at += strcspn(at, "\n");
        } else {
            if (!cplusplus) *to++ = *at;
            at++;
        }
    }
    *to = '\0';
    return text;
}

/* Its name is the last word, or, of a pointer to a function, the one in its brackets. */
static void read_parameter(const char *text, size_t length, struct parameter *out) {
    char copy[256];
    snprintf(copy, sizeof copy, "%.*s", (int)length, text);
    char *end = strstr(copy, "(*");
    out->pointer = strpbrk(copy, "*[") != NULL;
    out->out = strstr(copy, " **") && strncmp(copy, "const", 5) != 0;
    end = end ? end + 2 + strcspn(end + 2, ")") : strchr(copy, '[') ? strchr(copy, '[') : copy + strlen(copy);
    *end = '\0';
    char *begin = end;
    while (begin > copy && (isalnum((unsigned char)begin[-1]) || begin[-1] == '_')) begin--;
    snprintf(out->name, sizeof out->name, "%.31s", begin);
}

static void read_parameters(const char *text, struct function *out) {
    if (strncmp(text, "void)", 5) == 0) return;
    int depth = 0;
    for (const char *begin = text, *at = text;; at++) {
        if (depth == 0 && (*at == ',' || *at == ')')) {
            while (isspace((unsigned char)*begin)) begin++;
            assert_true(out->count < PARAMETERS_MOST);
            read_parameter(begin, (size_t)(at - begin), &out->parameters[out->count++]);
            begin = at + 1;
            if (*at == ')') return;
        }
        depth += (*at == '(') - (*at == ')');
    }
}

static int read_functions(struct fixture *f, struct function *functions) {
    char *text = read_header(f);
    int count = 0, braces = 0;
    for (char *begin = text, *at = text; *at; at++) {
        braces += (*at == '{') - (*at == '}');
        if (*at != ';' || braces) continue;
        *at = '\0';
        begin += strspn(begin, " \n");
        char *bracket = strchr(begin, '('), *name = bracket;
        while (name && name > begin && (isalnum((unsigned char)name[-1]) || name[-1] == '_')) name--;
        if (bracket && strncmp(begin, "typedef", 7) != 0) {
            assert_true(count < FUNCTIONS_MOST);
            snprintf(functions[count].name, sizeof functions->name, "%.*s", (int)(bracket - name), name);
            read_parameters(bracket + 1, &functions[count++]);
        }
        begin = at + 1;
    }
    free(text);
    return count;
}

/* ---- calls with NULL ------------------------------------------------------------------------------------------- */

/* What the calls get where an argument is not NULL. */
struct world {
    snug_context *ctx;
    snug_args *args; /* of a model that does not exist: what needs it ends there */
    snug_rows *rows;
    snug_session *session;
    snug_model *model;
    void *out;
    int null; /* the argument that is */
    /* What the last call returned. */
    bool known, has_status, has_value;
    snug_status status;
    double value;
};

static snug_status on_prediction(void *user, const snug_prediction *row) { return user || row ? SNUG_OK : SNUG_END; }
static snug_status on_tokenized(void *user, const snug_tokenized *row) { return user || row ? SNUG_OK : SNUG_END; }
static snug_status on_check(void *user, const snug_check *check) { return user || check ? SNUG_OK : SNUG_END; }

/* Argument number i, which is the last one refused that is NULL: so the others need not be valid. */
#define A(i, value) (w->null == (i) ? NULL : (value))
/* A handle that no call may look at before it has refused another argument. */
#define ANY(type) ((type *)(void *)nothing)
#define OUT(i, type) A(i, (type **)&w->out) /* NOLINT(bugprone-macro-parentheses): a type */
#define CALL(name) else if (strcmp(function, #name) == 0 && (w->known = true))
#define STATUS(name, ...) CALL(name) w->has_status = true, w->status = name(__VA_ARGS__);
#define VALUE(name, ...) CALL(name) w->has_value = true, w->value = (double)name(__VA_ARGS__);
#define POINTER(name, ...) CALL(name) w->has_value = true, w->value = name(__VA_ARGS__) != NULL;
#define NOTHING(name, ...) CALL(name) name(__VA_ARGS__);

static max_align_t nothing[64];
static const snug_callbacks callbacks;
static char buffer[4096];
static const char *const texts[] = {"good"};
static const snug_value value = {.kind = SNUG_VALUE_INTEGER, .integer = 1};
static float values[VOCABULARY * 32];
static char *const words[] = {"program"};

static void call_arguments(struct world *w, const char *function) {
    if (!*function) w->known = false;
    POINTER(snug_version)
    NOTHING(snug_free, A(0, strdup("text")))
    POINTER(snug_memory_class_name, SNUG_MEMORY_HOST)
    STATUS(snug_context_create, OUT(0, snug_context))
    NOTHING(snug_context_destroy, NULL)
    NOTHING(snug_context_set_log, A(0, w->ctx), NULL, A(2, w), SNUG_LOG_INFO)
    POINTER(snug_error_message, A(0, w->ctx))
    VALUE(snug_escape, A(0, buffer), sizeof buffer, A(2, "text"), 4)
    STATUS(snug_args_create, A(0, w->ctx), OUT(1, snug_args))
    NOTHING(snug_args_destroy, NULL)
    STATUS(snug_args_set, A(0, w->args), A(1, "seed"), A(2, "1"))
    STATUS(snug_args_get, A(0, w->args), A(1, "seed"), A(2, buffer), sizeof buffer)
    VALUE(snug_args_given, A(0, w->args), A(1, "seed"))
    STATUS(snug_args_parse, A(0, w->args), 1, A(2, words))
    VALUE(snug_args_rank, A(0, w->args))
    VALUE(snug_args_rank_count, A(0, w->args))
    NOTHING(snug_end_ranks, A(0, w->args), 0)
    POINTER(snug_args_info, 0)
    STATUS(snug_rows_create, A(0, w->ctx), OUT(1, snug_rows))
    NOTHING(snug_rows_destroy, NULL)
    STATUS(snug_rows_text, A(0, w->rows), A(1, "text"), A(2, "good"))
    STATUS(snug_rows_integer, A(0, w->rows), A(1, "label"), 1)
    STATUS(snug_rows_real, A(0, w->rows), A(1, "label"), 0.5)
    STATUS(snug_rows_set, A(0, w->rows), A(1, "label"), A(2, &value))
    STATUS(snug_rows_end, A(0, w->rows))
    STATUS(snug_rows_add, A(0, w->rows), A(1, texts), A(2, &value), 1)
    STATUS(snug_rows_classes, A(0, w->rows), A(1, "label"), A(2, texts), 1)
    STATUS(snug_args_set_rows, A(0, w->args), A(1, "train_file"), A(2, w->rows))
}

static void call_jobs(struct world *w, const char *function) {
    if (!*function) w->known = false;
    STATUS(snug_plan_create, A(0, w->args), OUT(1, snug_plan))
    NOTHING(snug_plan_destroy, NULL)
    VALUE(snug_plan_bytes, A(0, ANY(snug_plan)), SNUG_MEMORY_HOST)
    VALUE(snug_plan_total, A(0, ANY(snug_plan)))
    STATUS(snug_plan_text, A(0, ANY(snug_plan)), OUT(1, char))
    STATUS(snug_plan_json, A(0, ANY(snug_plan)), OUT(1, char))
    STATUS(snug_rates_create, A(0, w->args), OUT(1, snug_rates))
    NOTHING(snug_rates_destroy, NULL)
    STATUS(snug_rates_text, A(0, ANY(snug_rates)), OUT(1, char))
    STATUS(snug_rates_json, A(0, ANY(snug_rates)), OUT(1, char))
    STATUS(snug_gpus_create, A(0, w->ctx), OUT(1, snug_gpus))
    NOTHING(snug_gpus_destroy, NULL)
    STATUS(snug_gpus_text, A(0, ANY(snug_gpus)), OUT(1, char))
    STATUS(snug_gpus_json, A(0, ANY(snug_gpus)), OUT(1, char))
    STATUS(snug_doctor_create, A(0, w->args), OUT(1, snug_doctor))
    NOTHING(snug_doctor_destroy, NULL)
    STATUS(snug_doctor_text, A(0, ANY(snug_doctor)), OUT(1, char))
    STATUS(snug_doctor_json, A(0, ANY(snug_doctor)), OUT(1, char))
    NOTHING(snug_metrics_destroy, NULL)
    NOTHING(snug_train_result_destroy, NULL)
    STATUS(snug_train, A(0, w->args), A(1, &callbacks), OUT(2, snug_train_result))
    STATUS(snug_train_result_text, A(0, ANY(snug_train_result)), OUT(1, char))
    STATUS(snug_train_result_memory_text, A(0, ANY(snug_train_result)), OUT(1, char))
    STATUS(snug_anatomy_create, A(0, w->args), A(1, &callbacks), OUT(2, snug_anatomy))
    NOTHING(snug_anatomy_destroy, NULL)
    STATUS(snug_anatomy_text, A(0, ANY(snug_anatomy)), OUT(1, char))
    STATUS(snug_anatomy_json, A(0, ANY(snug_anatomy)), OUT(1, char))
    STATUS(snug_runs_create, A(0, w->ctx), A(1, texts), 1, OUT(3, snug_runs))
    NOTHING(snug_runs_destroy, NULL)
    STATUS(snug_runs_html, A(0, ANY(snug_runs)), OUT(1, char))
    STATUS(snug_evaluate, A(0, w->args), A(1, &callbacks), OUT(2, snug_metrics))
    STATUS(snug_predict, A(0, w->args), A(1, &callbacks), A(2, on_prediction), A(3, w))
    STATUS(snug_embed, A(0, w->args), A(1, &callbacks), A(2, on_prediction), A(3, w))
    STATUS(snug_model_open, A(0, w->args), OUT(1, snug_model))
    POINTER(snug_model_describe, A(0, w->model))
    STATUS(snug_model_close, A(0, w->model))
    NOTHING(snug_model_destroy, NULL)
    STATUS(snug_model_predict, A(0, w->model), A(1, w->ctx), A(2, texts), A(3, texts), 1, A(5, on_prediction), A(6, w))
    STATUS(snug_model_predict_rows, A(0, w->model), A(1, w->ctx), A(2, w->rows), A(3, on_prediction), A(4, w))
    STATUS(snug_tokenize, A(0, w->args), A(1, on_tokenized), A(2, w))
    STATUS(snug_merge, A(0, w->args))
    NOTHING(snug_pull_result_destroy, NULL)
    STATUS(snug_pull, A(0, w->args), A(1, &callbacks), OUT(2, snug_pull_result))
    STATUS(snug_verify, A(0, w->args), A(1, &callbacks), A(2, on_check), A(3, w))
}

static void call_session(struct world *w, const char *function) {
    if (!*function) w->known = false;
    STATUS(snug_session_create, A(0, w->args), OUT(1, snug_session))
    NOTHING(snug_session_destroy, NULL)
    VALUE(snug_session_epochs, A(0, w->session))
    VALUE(snug_session_epoch, A(0, w->session))
    VALUE(snug_session_steps, A(0, w->session))
    STATUS(snug_session_begin_epoch, A(0, w->session), 0)
    STATUS(snug_next_batch, A(0, w->session), (const snug_batch_info **)OUT(1, snug_batch_info))
    STATUS(snug_forward, A(0, w->session))
    STATUS(snug_loss, A(0, w->session), A(1, &w->value))
    STATUS(snug_backward, A(0, w->session))
    STATUS(snug_clip_grad_norm, A(0, w->session), 1, A(2, &w->value))
    STATUS(snug_optimizer_step, A(0, w->session))
    STATUS(snug_scheduler_step, A(0, w->session))
    VALUE(snug_learning_rate, A(0, w->session))
    STATUS(snug_set_learning_rate, A(0, w->session), 1e-3)
    STATUS(snug_zero_grad, A(0, w->session))
    STATUS(snug_session_evaluate, A(0, w->session), OUT(1, snug_metrics))
    STATUS(snug_save_model, A(0, w->session), A(1, "/none/such"))
    STATUS(snug_save_checkpoint, A(0, w->session), A(1, "/none/such"))
    STATUS(snug_load_checkpoint, A(0, w->session), A(1, "/none/such"))
    STATUS(snug_get_parameter, A(0, w->session), A(1, "classifier.bias"), A(2, values), 2)
    STATUS(snug_set_parameter, A(0, w->session), A(1, "classifier.bias"), A(2, values), 2)
    STATUS(snug_get_gradient, A(0, w->session), A(1, "classifier.bias"), A(2, values), 2)
    POINTER(snug_parameter_name, A(0, w->session), 0, (size_t *)A(2, &w->value))
    VALUE(snug_parameter_trainable, A(0, w->session), 0)
}

/* Pointers that the header allows to be NULL, besides those of every function: callbacks, user, and what is destroyed.
 */
static bool may_be_null(const struct function *function, const struct parameter *parameter) {
    static const char *const others[] = {
        "snug_free text",       "snug_error_message ctx",   "snug_context_set_log fn",  "snug_end_ranks args",
        "snug_train result",    "snug_evaluate metrics",    "snug_pull result",         "snug_model_predict pairs",
        "snug_next_batch info", "snug_clip_grad_norm norm", "snug_parameter_name count"};
    const size_t length = strlen(function->name);
    char both[96];
    if (strcmp(parameter->name, "callbacks") == 0 || strcmp(parameter->name, "user") == 0) return true;
    if (length > 8 && strcmp(function->name + length - 8, "_destroy") == 0) return true;
    snprintf(both, sizeof both, "%.47s %.31s", function->name, parameter->name);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(others[i], both) == 0) return true;
    return false;
}

static void call(struct world *w, const struct function *function, int null) {
    w->null = null;
    w->known = w->has_status = w->has_value = false;
    w->out = w;
    call_arguments(w, function->name);
    call_jobs(w, function->name);
    call_session(w, function->name);
    if (!w->known) fail_msg("%s is in the header, but not in this test", function->name);
}

static void check_null(struct world *w, const struct function *function, int null) {
    const struct parameter *parameter = &function->parameters[null];
    char expected[96];
    call(w, function, null);
    snprintf(expected, sizeof expected, "%.40s: %.31s must not be NULL", function->name, parameter->name);
    if (may_be_null(function, parameter)) {
        if (w->has_status && strstr(snug_error_message(w->ctx), "must not be NULL"))
            fail_msg("%s", snug_error_message(w->ctx));
        return;
    }
    if (w->has_status) assert_int_equal(w->status, SNUG_E_USAGE);
    if (w->has_value && !isnan(w->value) && w->value != -1 && w->value != 0)
        fail_msg("%s returned %g", expected, w->value);
    assert_contains(snug_error_message(w->ctx), expected);
    for (int i = 0; i < function->count; i++)
        if (i != null && function->parameters[i].out && w->out) fail_msg("%s: %s is set", expected, "out");
}

FIXTURE_TEST(test_null) {
    struct function functions[FUNCTIONS_MOST] = {0};
    const int count = read_functions(f, functions);
    int pointers = 0;
    struct world w = {.ctx = f->ctx};
    train(f, "out", "max_steps=1");
    snug_args *of_session = training_args(f, NULL), *of_model = plain_args(f, "model_name_or_path=@out");
    w.args = plain_args(f, "model_name_or_path=/none/such");
    ok(f, snug_rows_create(f->ctx, &w.rows));
    ok(f, snug_session_create(of_session, &w.session));
    ok(f, snug_model_open(of_model, &w.model));
    for (int i = 0; i < count; i++) {
        if (functions[i].count == 0) call(&w, &functions[i], -1);
        for (int k = 0; k < functions[i].count; k++) {
            if (!functions[i].parameters[k].pointer) continue;
            pointers++;
            check_null(&w, &functions[i], k);
        }
    }
    assert_true(count > 90 && pointers > 150);
    ok(f, snug_model_predict(w.model, f->ctx, NULL, NULL, 0, on_prediction, NULL));
    ok(f, snug_rows_classes(w.rows, "label", NULL, 0));
    snug_model_destroy(w.model);
    snug_session_destroy(w.session);
    snug_rows_destroy(w.rows);
    snug_args_destroy(w.args);
    snug_args_destroy(of_model);
    snug_args_destroy(of_session);
}

/* NULL among the items of an array, and results that are not wanted. */
FIXTURE_TEST(test_items) {
    char *const argv[] = {"program", "--seed", NULL};
    const char *const folders[] = {"a", "b", NULL};
    snug_runs *runs;
    train(f, "out", "max_steps=1");
    snug_args *args = plain_args(f, "model_name_or_path=@out validation_file=@dev.csv");
    fails(f, snug_args_parse(args, 3, argv), "snug_args_parse: argv[2] must not be NULL");
    fails(f, snug_runs_create(f->ctx, folders, 3, &runs), "snug_runs_create: folders[2] must not be NULL");
    assert_null(runs);
    ok(f, snug_evaluate(args, NULL, NULL));
    assert_int_equal(snug_escape(buffer, 0, "text", 4), 0);
    snug_args_destroy(args);
}

/* A refused call's message is its thread's, until its next call; that of a failed call stays its context's. */
FIXTURE_TEST(test_messages) {
    snug_context *other;
    ok(f, snug_context_create(&other));
    snug_args *args = plain_args(f, "");
    fails(f, snug_args_set(args, "sead", "1"), "the nearest is --seed");
    fails(f, snug_args_set(args, NULL, "1"), "snug_args_set: name must not be NULL");
    assert_string_equal(snug_error_message(NULL), snug_error_message(other));
    assert_int_equal(snug_plan_bytes(NULL, SNUG_MEMORY_HOST), -1);
    assert_string_equal(snug_error_message(other), "snug_plan_bytes: plan must not be NULL");
    assert_false(snug_args_given(args, "seed")); /* cannot fail, and leaves the message */
    assert_string_equal(snug_error_message(f->ctx), "snug_plan_bytes: plan must not be NULL");
    ok(f, snug_args_set(args, "seed", "1"));
    assert_string_equal(snug_error_message(NULL), "");
    assert_string_equal(snug_error_message(f->ctx), "");
    fails(f, snug_args_set(args, "seed", "x"), "--seed");
    snug_args_destroy(args);
    assert_contains(snug_error_message(f->ctx), "--seed"); /* as long as the context */
    snug_context_destroy(other);
}

/* ---- the order of a loop's calls ------------------------------------------------------------------------------- */

/* One call by its letter. */
static snug_status step(struct fixture *f, snug_session *s, char letter) {
    snug_metrics *metrics;
    double loss;
    snug_status status = SNUG_OK;
    switch (letter) {
    case 'e': return snug_session_begin_epoch(s, 0);
    case 'n': return snug_next_batch(s, NULL);
    case 'f': return snug_forward(s);
    case 'l': return snug_loss(s, &loss);
    case 'b': return snug_backward(s);
    case 'c': return snug_clip_grad_norm(s, 1, &loss);
    case 'u': return snug_optimizer_step(s);
    case 's': return snug_scheduler_step(s);
    case 'z': return snug_zero_grad(s);
    case 'g': return snug_get_gradient(s, "classifier.bias", values, 2);
    case 'p': return snug_set_parameter(s, "classifier.bias", (const float[]){0, 0}, 2);
    case 'k': return snug_save_checkpoint(s, path_of(f, "checkpoint"));
    case 'o': return snug_load_checkpoint(s, path_of(f, "checkpoint"));
    case 'v':
        status = snug_session_evaluate(s, &metrics);
        snug_metrics_destroy(metrics);
        return status;
    default: fail_msg("%c is no call", letter); return status;
    }
}

FIXTURE_TEST(test_order) {
    /* Calls of which the last one is refused; says NULL: it is not. */
    static const struct {
        const char *calls, *says;
    } cases[] = {
        {"n", "snug_next_batch: no epoch has begun; call snug_session_begin_epoch first"},
        {"f", "snug_forward: there is no current batch; call snug_next_batch first"},
        {"el", "snug_loss: there is no current batch"},
        {"eb", "snug_backward: there is no current batch"},
        {"enl", "snug_loss: call snug_forward first"},
        {"enb", "snug_backward: call snug_forward first"},
        {"enfb", "snug_backward: call snug_loss first"},
        {"enfll", "snug_loss: it has been called on the current micro-batch; call snug_next_batch"},
        {"enflbb", "snug_backward: it has been called on the current micro-batch"},
        {"enflbl", "snug_loss: it has been called on the current micro-batch"},
        {"enflbf", "snug_forward: it has been called on the current micro-batch"},
        {"enfflb", NULL},
        {"ec", "snug_clip_grad_norm: there are no gradients; call snug_backward first"},
        {"enflu", "snug_optimizer_step: there are no gradients; call snug_backward first"},
        {"eng", "snug_get_gradient: there are no gradients"},
        {"enflbzg", "snug_get_gradient: there are no gradients"},
        {"enflbzu", "snug_optimizer_step: there are no gradients"},
        {"enflbnflu", "snug_optimizer_step: snug_loss has added the head's gradients of the current micro-batch"},
        {"enflbnflc", "snug_clip_grad_norm: snug_loss has added the head's gradients"},
        {"enflbnfln", "snug_next_batch: snug_loss has added the head's gradients"},
        {"enflbnflzb", "snug_backward: call snug_loss first"},
        {"enflbnflzlbcu", NULL},
        {"enfln", NULL}, /* a loss alone: the next one overwrites its gradients */
        {"ennn", NULL},
        {"enflnflbu", NULL},
        {"enfp", "snug_set_parameter: classifier.bias would have another value in backward than in forward"},
        {"enflp", "snug_set_parameter: classifier.bias would have another value"},
        {"enflbp", NULL},
        {"enk", "snug_save_checkpoint: a step has begun"},
        {"envf", "snug_forward: there is no current batch"},
        {"enflbvb", "snug_backward: there is no current batch"},
        {"enflbuszkon", "snug_next_batch: no epoch has begun"},
        {"enflbuszkoe", NULL},
        {"enflbef", "snug_forward: there is no current batch"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snug_session *session;
        snug_args *args = training_args(f, "gradient_accumulation_steps=2 validation_file=@dev.csv");
        ok(f, snug_session_create(args, &session));
        const char *calls = cases[i].calls;
        for (; calls[1]; calls++) ok(f, step(f, session, *calls));
        const snug_status status = step(f, session, *calls);
        if (cases[i].says)
            fails(f, status, cases[i].says);
        else
            ok(f, status);
        const char *rest = "enflbnflbcusz"; /* it is still usable */
        if (strstr(cases[i].calls, "nfl")) rest = "zenflbnflbcusz";
        for (; *rest; rest++) ok(f, step(f, session, *rest));
        snug_session_destroy(session);
        snug_args_destroy(args);
    }
}

/* Epochs that were not planned, whose batches may be larger than the plan's. */
FIXTURE_TEST(test_epochs) {
    static const struct {
        const char *words;
        int64_t epochs;
    } cases[] = {{"num_train_epochs=2", 2}, {"num_train_epochs=1.5", 2}, {"max_steps=25", 3}, {"max_steps=1", 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snug_session *session;
        snug_args *args = training_args(f, cases[i].words);
        ok(f, snug_session_create(args, &session));
        assert_int_equal(snug_session_epochs(session), cases[i].epochs);
        const int64_t wrong[] = {-1, cases[i].epochs, cases[i].epochs + 1, INT64_MAX, INT64_MIN};
        for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++)
            fails(f, snug_session_begin_epoch(session, wrong[k]),
                  "snug_session_begin_epoch: the session has the epochs 0 to ");
        fails(f, snug_next_batch(session, NULL), "no epoch has begun");
        for (int64_t epoch = cases[i].epochs; epoch-- > 0;) {
            ok(f, snug_session_begin_epoch(session, epoch));
            ok(f, snug_next_batch(session, NULL));
        }
        snug_session_destroy(session);
        snug_args_destroy(args);
    }
}

/* A checkpoint of which only a part was loaded: everything that uses the weights is refused until another is. */
FIXTURE_TEST(test_failed_session) {
    snug_session *frozen, *session;
    snug_args *of_frozen = training_args(f, "freeze=embeddings"), *args = training_args(f, "validation_file=@dev.csv");
    ok(f, snug_session_create(of_frozen, &frozen));
    ok(f, snug_save_checkpoint(frozen, path_of(f, "part")));
    ok(f, snug_session_create(args, &session));
    for (const char *calls = "enflbcuszk"; *calls; calls++) ok(f, step(f, session, *calls));
    assert_int_equal(snug_load_checkpoint(session, path_of(f, "none")), SNUG_E_IO); /* nothing has changed */
    ok(f, step(f, session, 'n'));
    assert_int_equal(snug_load_checkpoint(session, path_of(f, "part")), SNUG_E_INPUT);
    for (const char *calls = "enflbcugpkv"; *calls; calls++)
        fails(f, step(f, session, *calls),
              "snug_load_checkpoint has failed and may have changed a part of the weights");
    fails(f, snug_save_model(session, path_of(f, "model2")), "load a checkpoint by snug_load_checkpoint");
    fails(f, snug_get_parameter(session, "classifier.bias", values, 2), "or create another session");
    ok(f, step(f, session, 's'));
    for (const char *calls = "oenflbcuszkv"; *calls; calls++) ok(f, step(f, session, *calls));
    snug_session_destroy(frozen);
    snug_session_destroy(session);
    snug_args_destroy(of_frozen);
    snug_args_destroy(args);
}

TEST_MAIN(NULL, NULL)
