/* SPDX-License-Identifier: Apache-2.0 */
/* --load_best_model_at_end where the best evaluation is that of a step which is not saved, and early stopping without
   checkpoints. */
#include <math.h>

#include "training_fixture.h"

#define FIXTURE struct fixture *f, set_up, tear_down

/* The evaluations of a training, as its log_history has them, and whether their steps were saved. */
struct evaluation {
    int64_t step;
    double value;
    bool saved;
};
enum { MOST = 64 };

static size_t evaluations_of(const struct fixture *f, const char *output, const char *metric,
                             struct evaluation items[MOST]) {
    json_t *history = history_of(f, output), *entry;
    size_t count = 0, i;
    json_array_foreach(history, i, entry) {
        const json_t *value = json_object_get(entry, metric);
        if (json_object_get(entry, "train_loss")) break; /* the rest is the evaluation after the training */
        if (!value) continue;
        assert_true(count < MOST);
        const int64_t step = json_integer_value(json_object_get(entry, "step"));
        items[count++] = (struct evaluation){step, json_number_value(value),
                                             exists(path_of(f, "%s/checkpoint-%lld", output, (long long)step))};
    }
    json_decref(history);
    return count;
}

/* The first of the best, of all or of the saved ones; NULL: none. */
static const struct evaluation *best_of(const struct evaluation *items, size_t count, bool saved, bool greater) {
    const struct evaluation *best = NULL;
    for (size_t i = 0; i < count; i++) {
        if (saved && !items[i].saved) continue;
        if (!best || (greater ? items[i].value > best->value : items[i].value < best->value)) best = &items[i];
    }
    return best;
}

/* The line of the log about what is loaded. */
static const char *loading(const struct fixture *f) {
    static char line[1024];
    const char *at = strstr(f->log, "loading the best");
    if (!at) return NULL;
    snprintf(line, sizeof line, "%.*s", (int)strcspn(at, "\n"), at);
    return line;
}

/* Compares a training with its log: what was loaded, said and recorded. Returns whether a better evaluation than the
   loaded one was not saved. */
static bool check(struct fixture *f, const char *output, const char *name, bool greater,
                  const snug_train_result *result) {
    struct evaluation items[MOST];
    char metric[64], says[128];
    snprintf(metric, sizeof metric, "%s%s", strncmp(name, "eval_", 5) == 0 ? "" : "eval_", name);
    const size_t count = evaluations_of(f, output, metric, items);
    const struct evaluation *saved = best_of(items, count, true, greater), *all = best_of(items, count, false, greater);
    assert_non_null(saved);
    const bool differs = greater ? all->value > saved->value : all->value < saved->value;
    assert_same_file(f, path_of(f, "%s/checkpoint-%lld/model.safetensors", output, (long long)saved->step),
                     path_of(f, "%s/model.safetensors", output));
    assert_string_equal(result->best_checkpoint, path_of(f, "%s/checkpoint-%lld", output, (long long)saved->step));
    assert_true(metric_of(result->metrics, metric) == saved->value);
    snprintf(says, sizeof says, "checkpoint-%lld (%s %g)", (long long)saved->step, name, saved->value);
    assert_contains(loading(f), says);
    snprintf(says, sizeof says, "the best evaluation was that of step %lld (%s %g), which is not saved",
             (long long)all->step, name, all->value);
    assert_int_equal(strstr(loading(f), says) != NULL, differs);
    assert_int_equal(strstr(f->log, "warning: loading the best") != NULL, differs);
    json_t *state = read_json(f, path_of(f, "%s/trainer_state.json", output));
    assert_true(json_number_value(json_object_get(state, "best_metric")) == saved->value);
    assert_int_equal(json_integer_value(json_object_get(state, "best_global_step")), saved->step);
    assert_string_equal(json_string_value(json_object_get(state, "best_model_checkpoint")), result->best_checkpoint);
    const json_t *own = json_object_get(json_object_get(state, "stateful_callbacks"), "snug");
    assert_true(json_number_value(json_object_get(own, "best_evaluation_metric")) == all->value);
    assert_int_equal(json_integer_value(json_object_get(own, "best_evaluation_step")), all->step);
    json_decref(state);
    return differs;
}

#define JUDGED                                                                                                         \
    "validation_file=@dev.csv eval_strategy=steps eval_steps=1 save_strategy=steps load_best_model_at_end=True "       \
    "lr_scheduler_type=constant learning_rate=0.02 max_steps=12 "

FIXTURE_TEST(test_best_saved_step) {
    static const struct {
        const char *words, *metric;
        bool greater;
    } cases[] = {
        {JUDGED "save_steps=3", "loss", false},
        {JUDGED "save_steps=3 seed=2", "loss", false},
        {JUDGED "save_steps=3 seed=7", "loss", false},
        {JUDGED "save_steps=5 seed=3", "loss", false}, /* and the last step */
        {JUDGED "save_steps=4 seed=4 save_total_limit=1", "loss", false},
        {JUDGED "save_steps=3 seed=2 metric_for_best_model=accuracy", "accuracy", true},
        {JUDGED "save_steps=4 seed=5 metric_for_best_model=eval_f1", "eval_f1", true},
        {JUDGED "save_steps=4 seed=5 metric_for_best_model=loss greater_is_better=True", "loss", true},
        {JUDGED "save_steps=1 seed=2", "loss", false},
        {JUDGED "eval_steps=2 save_steps=6 seed=2", "loss", false},
        {JUDGED "save_strategy=best seed=2", "loss", false},
    };
    int differ = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        *f->log = '\0';
        char name[16];
        snprintf(name, sizeof name, "out%zu", i);
        const snug_train_result result = train(f, name, cases[i].words);
        const bool differs = check(f, name, cases[i].metric, cases[i].greater, &result);
        if (i >= 8 && i != 9) assert_false(differs); /* every best evaluation is saved */
        differ += differs;
    }
    assert_true(differ >= 3);
}

/* The best saved step and patience are those of an uninterrupted run; the checkpoint of the interruption is no
   candidate, since that run has none there. */
FIXTURE_TEST(test_resumed) {
    const char *const words = JUDGED "save_steps=3 seed=7";
    train(f, "whole", words);
    for (int stop = 2; stop < 12; stop += 3) {
        snug_train_result result;
        const char *const again = JUDGED "save_steps=3 seed=7 resume_from_checkpoint=True";
        assert_int_equal(try_train(f, "parts", words, stop, NULL), SNUG_E_INTERRUPTED);
        assert_true(exists(path_of(f, "parts/checkpoint-%d", stop)));
        assert_int_equal(try_train(f, "parts", again, 0, &result), SNUG_OK);
        assert_same_run(f, "whole", "parts");
        json_t *a = read_json(f, path_of(f, "whole/trainer_state.json")),
               *b = read_json(f, path_of(f, "parts/trainer_state.json"));
        assert_true(json_equal(json_object_get(a, "best_metric"), json_object_get(b, "best_metric")));
        assert_true(json_equal(json_object_get(a, "best_global_step"), json_object_get(b, "best_global_step")));
        json_decref(a);
        json_decref(b);
        assert_int_equal(snug_folder_remove(f->ctx, NULL, path_of(f, "parts")), SNUG_OK);
    }
}

/* Only the last step is saved, or none that was evaluated: it is said before step 1, and at the end. */
FIXTURE_TEST(test_nothing_to_load) {
    snug_train_result result = train(f, "last", JUDGED "save_steps=500");
    assert_contains(f->log, "warning: --load_best_model_at_end has no effect: of 12 steps only the last one is both");
    assert_string_equal(result.best_checkpoint, path_of(f, "last/checkpoint-12"));
    *f->log = '\0';
    result = train(f, "none", JUDGED "eval_steps=5 save_steps=500");
    assert_null(result.best_checkpoint);
    assert_contains(f->log, "warning: --load_best_model_at_end has no effect: of 12 steps none is both");
    assert_contains(f->log, "no step that was evaluated is saved: the last weights stay; the best evaluation was that");
    assert_same_in_both(f, "none", "last", "checkpoint-12/model.safetensors");
    json_t *state_json = read_json(f, path_of(f, "none/trainer_state.json"));
    assert_true(json_is_null(json_object_get(state_json, "best_model_checkpoint")));
    assert_true(json_is_number(json_object_get(state_json, "best_metric")));
    json_decref(state_json);
}

/* Evaluations that are not finite are no candidates, though their steps are saved. */
FIXTURE_TEST(test_not_finite) {
    write_text(f, "values.csv", "sentence,label\nw1 good,0.25\nw2 bad,-0.5\n");
    write_text(f, "far.csv", "sentence,label\nw1 good,3e38\n");
    *f->log = '\0';
    const snug_train_result result = train(f, "out",
                                           JUDGED "train_file=@values.csv validation_file=@far.csv "
                                                  "learning_rate=1e-4 save_steps=2 max_steps=4");
    assert_null(result.best_checkpoint);
    assert_true(exists(path_of(f, "out/checkpoint-2")));
    assert_contains(f->log, "no evaluation in the training had a finite loss: the last weights stay");
}

/* As transformers: the run stops early, and its last weights are the model. */
FIXTURE_TEST(test_early_stopping_without_saving) {
    static const struct {
        const char *words;
        int steps; /* 0: of the metric */
    } cases[] = {
        {"eval_strategy=steps eval_steps=2 learning_rate=0 early_stopping_patience=2", 6},
        {"eval_strategy=epoch num_train_epochs=5 learning_rate=0 early_stopping_patience=1", 20},
        {"eval_strategy=steps eval_steps=1 learning_rate=1e-4 early_stopping_patience=3 early_stopping_threshold=100",
         4},
        {"eval_strategy=steps eval_steps=3 learning_rate=0 early_stopping_patience=1 metric_for_best_model=accuracy",
         6},
        {"eval_strategy=steps eval_steps=2 learning_rate=0 early_stopping_patience=2 save_strategy=steps save_steps=4",
         6},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char words[512], last[512];
        *f->log = '\0';
        snprintf(words, sizeof words, "validation_file=@dev.csv lr_scheduler_type=constant %s", cases[i].words);
        const snug_train_result result = train(f, "out", words);
        assert_int_equal(result.steps, cases[i].steps);
        assert_contains(f->log, "stopped early at step ");
        assert_contains(f->log, "are not loaded at the end: the last ones stay");
        assert_null(loading(f));
        snprintf(last, sizeof last,
                 "lr_scheduler_type=constant %s max_steps=%d eval_strategy=no early_stopping_patience=0 "
                 "save_strategy=no",
                 strstr(cases[i].words, "learning_rate="), cases[i].steps);
        train(f, "plain", last);
        assert_same_in_both(f, "out", "plain", "model.safetensors");
        assert_int_equal(snug_folder_remove(f->ctx, NULL, path_of(f, "out")), SNUG_OK);
        assert_int_equal(snug_folder_remove(f->ctx, NULL, path_of(f, "plain")), SNUG_OK);
    }
}

TEST_MAIN(NULL, NULL)
