/* SPDX-License-Identifier: Apache-2.0 */
/* The output of a job on stderr: messages, Trainer's log lines and, on a terminal, a progress bar below them. */
#ifndef SNUG_CLI_PROGRESS_H
#define SNUG_CLI_PROGRESS_H

#include "snug.h"

struct progress {
    bool live; /* draw the bar */
    bool colour;
    bool utf8;
    bool quiet; /* neither bar nor log lines */
    bool drawn; /* the bar is on the terminal's last line */
    double at;  /* time of the last drawing, in seconds */
};

void progress_begin(struct progress *progress);
/* Callbacks of the library; user is the struct progress. */
void progress_on_event(void *user, const snug_event *event);
void progress_on_log(void *user, snug_log_level level, const char *message);
/* Whether a double is a whole number, of which it has every digit. */
bool progress_is_whole(double value);
/* Erases the bar. */
void progress_end(struct progress *progress);

#endif
