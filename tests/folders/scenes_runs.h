/* SPDX-License-Identifier: Apache-2.0 */
/* For scenes whose runs are stopped in the middle. */
#ifndef SNUG_TESTS_SCENES_RUNS_H
#define SNUG_TESTS_SCENES_RUNS_H

#include "scenes.h"

/* The log of 54 steps fills the pipe: once a line has been read, the run stops less than 60 steps after it. */
#define LONG TRAIN "--max_steps 240 --save_steps 60 --validation_file in/dev.csv --eval_strategy steps --eval_steps 60 "
/* The loss falls, so that the best checkpoint by the highest loss is the first one. */
#define BEST LONG "--load_best_model_at_end --metric_for_best_model loss --greater_is_better True --save_total_limit 1 "
#define RESUME "--resume_from_checkpoint True "

static inline void start_and_wait(struct scene *s, const char *words, const char *line) {
    start(s, words);
    wait_line(s, line);
}

static inline void kill_it(struct scene *s, int number) {
    kill(s->child, number);
    finish(s);
}

/* Which of the checkpoints 1 to 240 are in folder, as "60 240". */
static inline const char *checkpoints_in(const char *folder) {
    static char list[2048];
    char path[SCENE_PATH];
    list[0] = '\0';
    for (int i = 1; i <= 240; i++) {
        snprintf(path, sizeof path, "%s/checkpoint-%d", folder, i);
        if (there(path)) snprintf(list + strlen(list), sizeof list - strlen(list), *list ? " %d" : "%d", i);
    }
    return list;
}

static inline void expect_checkpoints(struct scene *s, const char *folder, const char *expected) {
    const char *found = checkpoints_in(folder);
    if (strcmp(found, expected) != 0)
        scene_fails(s, "the checkpoints are %s, not %s", *found ? found : "none", expected);
}

#endif
