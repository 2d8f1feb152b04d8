/* SPDX-License-Identifier: MIT */
/* What a person sees while training: one live line on a terminal, plain lines elsewhere. */
#ifndef PAL_CLI_PROGRESS_H
#define PAL_CLI_PROGRESS_H

#include "live.h"
#include "palimpsa/train.h"

typedef struct progress {
    live_line line;
    double peak_flops;  /* matrix multiply of this machine, measured at the start */
    double token_flops; /* of one trained token */
    pal_train_progress now;
} progress;

progress progress_begin(const pal_context *cx, double token_flops);
/* Seconds that training on so many tokens takes, roughly: by the arithmetic of the model and what training reaches of
 * this machine's speed. */
double progress_estimate(const progress *view, double tokens);
void progress_train(progress *view); /* shows view->now */
void progress_end(progress *view);

/* "3 s", "12 min", "2 h 05 min" */
void progress_duration(char text[32], double seconds);

#endif
