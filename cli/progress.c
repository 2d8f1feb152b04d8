/* SPDX-License-Identifier: MIT */
#include "progress.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

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
    return (progress){ .terminal = isatty(STDOUT_FILENO) && !ranks_launched(),
                       .peak_flops = measure_peak(cx),
                       .token_flops = token_flops };
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

void progress_train(progress *view) {
    const pal_train_progress *p = &view->now;
    const double clock = pal_seconds();
    const bool line = p->logged && (!view->terminal || p->evaluated);
    if (!line && (!view->terminal || clock - view->shown < 0.1)) return;
    char left[32], stage[32] = "", accuracy[32] = "", score[48] = "";
    progress_duration(left, p->seconds_left);
    if (p->stages > 1) snprintf(stage, sizeof stage, "stage %d/%d  ", p->stage + 1, p->stages);
    if (isfinite(p->accuracy)) snprintf(accuracy, sizeof accuracy, "  train acc %.3f", p->accuracy);
    if (p->by_loss) snprintf(accuracy, sizeof accuracy, " (ppl %.4g)", exp(p->loss));
    if (isfinite(p->score) && p->by_loss)
        snprintf(score, sizeof score, "  valid %.4f (ppl %.4g)", -p->score, exp(-p->score));
    else if (isfinite(p->score)) snprintf(score, sizeof score, "  test acc %.3f", p->score);
    printf("%s%sstep %lld/%lld  loss %.4f%s%s  lr %.2e  %.0f tok/s (%.0f%% of peak)  %s left%s",
           view->terminal ? "\r\033[K" : "", stage, (long long)p->step, (long long)p->total, p->loss, accuracy, score,
           p->rate, p->tokens_per_s, 100 * p->tokens_per_s * view->token_flops / view->peak_flops, left,
           line ? "\n" : "");
    if (p->sample) printf("%s--- sample at step %lld ---\n%s\n---\n", line ? "" : "\n", (long long)p->step, p->sample);
    fflush(stdout);
    view->open = !line;
    view->shown = clock;
}

void progress_end(progress *view) {
    if (view->open) putchar('\n');
    view->open = false;
}
