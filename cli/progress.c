/* SPDX-License-Identifier: MIT */
#include "progress.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "kernels/matmul/matmul.h"
#include "ranks.h"

/* The best of a few products large enough to run at full speed; some tens of milliseconds. */
static double measure_peak(const pal_context *cx) {
    enum { N = 768, TRIES = 4 };
    static float a[3 * N * N]; /* 7 MB; without an allocation there is none that fails */
    double best = INFINITY;
    for (int i = 0; i < TRIES; i++) {
        const double start = pal_seconds();
        pal_matmul(cx, PAL_KEEP, PAL_TRANSPOSE, N, N, N, a, N, a + N * N, N, PAL_OVERWRITE, a + 2 * N * N, N);
        const double seconds = pal_seconds() - start;
        if (seconds < best) best = seconds;
    }
    return 2.0 * N * N * N / best;
}

progress progress_begin(const pal_context *cx, double token_flops) {
    progress view = { .line = live_begin(stdout), .peak_flops = measure_peak(cx), .token_flops = token_flops };
    view.line.terminal = view.line.terminal && !ranks_launched();
    return view;
}

double progress_estimate(const progress *view, double tokens) {
    const double share = 0.35; /* of the peak; 0.2 to 0.6 were seen, the less the smaller the model */
    return tokens * view->token_flops / (share * view->peak_flops);
}

void progress_duration(char text[32], double seconds) {
    if (!isfinite(seconds) || seconds > 1e9) snprintf(text, 32, "?");
    else if (seconds < 90) snprintf(text, 32, "%.0f s", seconds);
    else if (seconds < 5400) snprintf(text, 32, "%.0f min", seconds / 60);
    else snprintf(text, 32, "%d h %02d min", (int)(seconds / 3600), (int)(seconds / 60) % 60);
}

/* The most useful first: a narrow terminal shows the beginning. */
static void describe(const pal_train_progress *p, char text[512]) {
    char left[32], stage[32] = "", accuracy[32] = "", score[48] = "";
    progress_duration(left, p->seconds_left);
    if (p->stages > 1) snprintf(stage, sizeof stage, "stage %d/%d  ", p->stage + 1, p->stages);
    if (isfinite(p->accuracy)) snprintf(accuracy, sizeof accuracy, "  train acc %.3f", p->accuracy);
    if (isfinite(p->score) && p->by_loss)
        snprintf(score, sizeof score, "  valid %.4f (ppl %.4g)", -p->score, exp(-p->score));
    else if (isfinite(p->score)) snprintf(score, sizeof score, "  test acc %.3f", p->score);
    snprintf(text, 512, "%sstep %lld/%lld  %.0f%%  %s left  loss %.4f%s%s  lr %.2e  %.0f tok/s", stage,
             (long long)p->step, (long long)p->total, floor(100.0 * (double)p->step / (double)p->total), left,
             p->loss, accuracy, score, p->rate, p->tokens_per_s);
}

void progress_train(progress *view) {
    const pal_train_progress *p = &view->now;
    char text[512];
    const bool kept = p->logged && (!view->line.terminal || p->evaluated);
    if (!kept && !p->sample && (!view->line.terminal || !live_due(&view->line))) return;
    describe(p, text);
    if (!kept) {
        live_show(&view->line, "%s", text);
    } else {
        live_clear(&view->line);
        puts(text);
    }
    if (p->sample) {
        progress_end(view);
        printf("--- sample at step %lld ---\n%s\n---\n", (long long)p->step, p->sample);
    }
    fflush(stdout);
}

void progress_end(progress *view) {
    if (view->line.open) putchar('\n');
    view->line.open = false;
}
