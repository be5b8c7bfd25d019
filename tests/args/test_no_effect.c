/* SPDX-License-Identifier: Apache-2.0 */
/* Arguments that can have no effect in a run, which are named before its first step. */
#include <stdlib.h>
#include <string.h>

#include "test.h"
#include "train/no_effect.h"

static void keep_log(void *user, snug_log_level level, const char *message) {
    char *log = user;
    const size_t used = strlen(log);
    snprintf(log + used, 4096 - used, "%s%s\n", level == SNUG_LOG_WARNING ? "warning: " : "", message);
}

/* What is said of a run with these arguments, as on a command line. */
static void tell(const char *line, int64_t steps, int64_t per_epoch, const struct snug_effects *more, char log[4096]) {
    char copy[512], *words[32] = {"train"}, *save = NULL;
    int count = 1;
    snug_context *ctx;
    snug_args *args;
    struct snug_schedule schedule;
    struct snug_optimizer optimizer;
    assert_int_equal(snug_context_create(&ctx), SNUG_OK);
    assert_int_equal(snug_args_create(ctx, &args), SNUG_OK);
    snprintf(copy, sizeof copy,
             "--model_name_or_path m --train_file t.csv --validation_file v.csv --logging_strategy no %s", line);
    for (char *word = strtok_r(copy, " ", &save); word; word = strtok_r(NULL, " ", &save)) words[count++] = word;
    if (snug_args_parse(args, count, words) != SNUG_OK || snug_args_check(args, "train") != SNUG_OK)
        fail_msg("%s: %s", line, snug_error_message(ctx));
    assert_int_equal(snug_schedule_init(ctx, args->lr_scheduler_type, NULL, args->learning_rate, args->warmup_steps,
                                        (double)steps, &schedule),
                     SNUG_OK);
    assert_int_equal(snug_optimizer_parse(ctx, args->optim, NULL, 0.9, 0.999, 1e-8, 0, &optimizer), SNUG_OK);
    const struct snug_calendar calendar = snug_calendar_of(args, steps, per_epoch);
    struct snug_effects effects = *more;
    effects.args = args;
    effects.calendar = &calendar;
    effects.schedule = &schedule;
    effects.optimizer = &optimizer;
    *log = '\0';
    snug_context_set_log(ctx, keep_log, log, SNUG_LOG_DEBUG);
    snug_no_effect_tell(ctx, &effects);
    snug_args_destroy(args);
    snug_context_destroy(ctx);
}

static const struct snug_effects fresh = {.evaluates = true};

/* Runs of 30 steps, 10 an epoch. */
TEST(test_said) {
#define STEPS "--eval_strategy steps "
#define EPOCHS "--eval_strategy epoch "
    static const struct {
        const char *line, *says;
    } cases[] = {
        /* because of another argument */
        {"--per_device_train_tokens 4096 --dataloader_drop_last",
         "--dataloader_drop_last has no effect with --per_device_train_tokens, which fills every micro-batch\n"},
        {"--eval_steps 5", "--eval_steps has no effect without --eval_strategy steps\n"},
        {EPOCHS "--eval_steps 5", "--eval_steps has no effect without --eval_strategy steps\n"},
        {"--save_strategy epoch --save_steps 5", "--save_steps has no effect without --save_strategy steps\n"},
        {"--save_strategy no --save_total_limit 1", "--save_total_limit has no effect with --save_strategy no\n"},
        {"--logging_steps 5", "--logging_steps has no effect without --logging_strategy steps\n"},
        {"--eval_delay 2", "--eval_delay has no effect without --eval_strategy steps or epoch\n"},
        {"--metric_for_best_model f1",
         "--metric_for_best_model has no effect without --eval_strategy steps or epoch\n"},
        {"--greater_is_better", "--greater_is_better has no effect without --metric_for_best_model\n"},
        {EPOCHS "--early_stopping_threshold 0.1",
         "--early_stopping_threshold has no effect without --early_stopping_patience\n"},
        {"--max_steps 30 --num_train_epochs 5", "--num_train_epochs has no effect beside --max_steps"},
        {"--lr_scheduler_type constant --warmup_steps 5",
         "--warmup_steps has no effect with --lr_scheduler_type constant: use constant_with_warmup\n"},
        {"--lr_scheduler_type constant --warmup_ratio 0.9",
         "--warmup_steps has no effect with --lr_scheduler_type constant: use constant_with_warmup\n"},
        {"--lr_scheduler_type constant --warmup_steps 50",
         "--warmup_steps has no effect with --lr_scheduler_type constant"},
        {"--optim sgd --adam_beta2 0.99", "--adam_beta2 has no effect with this --optim, which has no betas\n"},
        {"--optim sgd --adam_epsilon 1e-6", "--adam_epsilon has no effect with this --optim, which has no epsilon\n"},
        {"--logging_dir logs", "--logging_dir has no effect without --report_to tensorboard\n"},
        /* because of the run's steps */
        {"--logging_strategy steps --logging_steps 31", "--logging_steps 31 has no effect: the run ends at step 30\n"},
        {STEPS "--eval_steps 31",
         "warning: --eval_steps 31: the run ends at step 30, and is evaluated only after it\n"},
        {STEPS "--logging_steps 5 --eval_steps 10", "--logging_steps has no effect without --logging_strategy steps\n"},
        {STEPS, "warning: --eval_steps 500: the run ends at step 30, and is evaluated only after it\n"},
        {STEPS "--eval_steps 10 --eval_delay 31",
         "warning: --eval_delay 31: the run ends at step 30, before its first evaluation"},
        {EPOCHS "--eval_delay 4", "warning: --eval_delay 4: the run ends at epoch 3, before its first evaluation"},
        {"--save_steps 30", "--save_steps 30: the run ends at step 30, and only that one is saved\n"},
        {"--save_steps 500", "--save_steps 500: the run ends at step 30, and only that one is saved\n"},
        {STEPS "--eval_steps 5 --save_steps 35 --load_best_model_at_end",
         "warning: --load_best_model_at_end has no effect: of 30 steps only the last one is both evaluated (every 5 "
         "steps) and saved (every 35 steps and at the end): the last weights stay\n"},
        {STEPS "--eval_steps 10 --load_best_model_at_end", "of 30 steps only the last one is both"},
        {STEPS "--eval_steps 7 --save_steps 35 --load_best_model_at_end", "of 30 steps none is both evaluated"},
        {STEPS "--eval_steps 10 --save_steps 10 --eval_delay 25 --load_best_model_at_end",
         "evaluated (every 10 steps from 25 on) and saved"},
        {EPOCHS "--save_strategy epoch --eval_delay 3 --load_best_model_at_end",
         "only the last one is both evaluated (after each epoch from 3 on) and saved (after each epoch)"},
        {STEPS "--eval_steps 30 --save_strategy best --load_best_model_at_end",
         "only the last one is both evaluated (every 30 steps) and saved (every 30 steps)"},
        {EPOCHS "--save_strategy no --early_stopping_patience 1",
         "warning: --early_stopping_patience 1 without --load_best_model_at_end: the best weights, by loss, are not "
         "loaded at the end: the last ones stay\n"},
        {EPOCHS "--save_strategy epoch --load_best_model_at_end --early_stopping_patience 2",
         "warning: --early_stopping_patience 2 has no effect: the run can stop after 3 evaluations at the earliest, "
         "and "
         "has 3 until its last step\n"},
        {EPOCHS "--save_strategy epoch --load_best_model_at_end --early_stopping_patience 1000000000000",
         "--early_stopping_patience 1000000000000 has no effect"},
        {"--warmup_steps 30",
         "warning: --warmup_steps 30: the warm-up takes 30 steps, and the run ends at step 30: the "
         "learning rate ends at 4.83e-05, below --learning_rate 5e-05\n"},
        {"--warmup_steps 1000 --lr_scheduler_type cosine", "ends at 1.45e-06, below"},
        {"--warmup_ratio 0.99", "--warmup_steps 0.99: the warm-up takes 30 steps"},
    };
    char log[4096];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tell(cases[i].line, 30, 10, &fresh, log);
        if (!strstr(log, cases[i].says))
            fail_msg("%s: \"%s\" does not contain \"%s\"", cases[i].line, log, cases[i].says);
    }
}

TEST(test_not_said) {
    static const char *const lines[] = {
        "",
        "--save_steps 29",
        "--save_strategy no",
        "--logging_strategy steps --logging_steps 30",
        "--logging_strategy steps --logging_steps 31 --logging_first_step",
        "--logging_strategy steps", /* the default, which every dump of arguments has */
        "--num_train_epochs 3 --max_steps 30 --adam_beta1 0.9 --optim sgd --eval_delay 0",
        STEPS "--eval_steps 30",
        STEPS "--logging_steps 5", /* also the steps between evaluations */
        STEPS "--eval_steps 10 --eval_delay 30",
        EPOCHS "--eval_delay 3",
        STEPS "--eval_steps 5 --save_steps 25 --load_best_model_at_end",
        STEPS "--eval_steps 0.2 --save_steps 0.4 --load_best_model_at_end",
        STEPS "--eval_steps 20 --save_strategy best --load_best_model_at_end",
        EPOCHS "--save_strategy epoch --load_best_model_at_end --early_stopping_patience 1",
        "--warmup_steps 29",
        "--warmup_ratio 0.9",
        "--optim lion_32bit --adam_beta1 0.8",
        "--report_to tensorboard --logging_dir logs",
        "--max_eval_samples 3",
    };
    char log[4096];
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        tell(lines[i], 30, 10, &fresh, log);
        if (*log) fail_msg("%s: %s", lines[i], log);
    }
}

/* What is left of a resumed run; a run without evaluation data. */
TEST(test_other_runs) {
    static const char *const stops =
        EPOCHS "--save_strategy epoch --load_best_model_at_end --early_stopping_patience 2";
    const struct {
        const char *line, *says;
        struct snug_effects more;
    } cases[] = {
        {"--max_eval_samples 3", "--max_eval_samples has no effect without evaluation data\n", {.evaluates = false}},
        {stops, "", {.evaluates = true, .step = 10, .has_best = true, .has_saved = true, .impatience = 1}},
        {stops, "", {.evaluates = true, .step = 10, .has_best = true, .has_saved = true, .impatience = 2}},
        {stops,
         "can stop after 2 evaluations at the earliest, and has 1 until",
         {.evaluates = true, .step = 20, .has_best = true, .has_saved = true}},
        {stops,
         "can stop after 1 evaluation at the earliest, and has 1 until",
         {.evaluates = true, .step = 20, .has_best = true, .has_saved = true, .impatience = 1}},
        {stops, "only the last one is both", {.evaluates = true, .step = 20, .has_best = true}},
        {STEPS "--eval_steps 20 --save_steps 20 --load_best_model_at_end",
         "none is both",
         {.evaluates = true, .step = 20}},
        {STEPS "--eval_steps 20",
         "the run ends at step 30, and is evaluated only after it",
         {.evaluates = true, .step = 20}},
        {"--logging_strategy steps --logging_steps 31 --logging_first_step",
         "--logging_steps 31 has no effect",
         {.evaluates = true, .step = 1}},
        {"--warmup_steps 50", "", {.evaluates = true, .step = 30}}, /* it is done */
    };
    char log[4096];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tell(cases[i].line, 30, 10, &cases[i].more, log);
        if (*cases[i].says ? !strstr(log, cases[i].says) : *log != '\0')
            fail_msg("case %zu: %s: %s", i, cases[i].line, log);
    }
}

TEST_MAIN(NULL, NULL)
