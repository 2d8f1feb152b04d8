/* SPDX-License-Identifier: MIT */
/* Trains a small model on the characters of a text, and stops cleanly on Ctrl-C; called again, it continues.
 *     cc train.c $(pkg-config --cflags --libs palimpsa) -o train && ./train book.txt runs/book 1000 */
#include <inttypes.h>
#include <palimpsa/palimpsa.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

static volatile sig_atomic_t stopping;
static void stop(int signal) { stopping = signal; }

static bool watch(void *user, size_t done, size_t total) {
    const pal_train_progress *now = user;
    if (now->evaluated)
        printf("update %zu of %zu: loss %.3f, validation %.3f, %.0f tokens/s\n", done, total, now->loss, -now->score,
               now->tokens_per_s);
    return !stopping;
}

int main(int argc, char **argv) {
    pal_context *cx = NULL;
    pal_train_settings settings;
    pal_train_progress now;
    pal_train_result result = { 0 };
    pal_error err;
    char config[4096];
    if (argc != 4) return fprintf(stderr, "usage: train TEXT RUNDIR UPDATES\n"), 2;
    snprintf(config, sizeof config, "%s/config.json", argv[2]);
    FILE *before = fopen(config, "r");
    if (before) fclose(before);
    const pal_train_run_options options = { .resume = before != NULL, .progress = watch, .report = &now, .user = &now };
    signal(SIGINT, stop);
    pal_status st = pal_context_new(&cx, 0, NULL, &err);
    if (!st) st = pal_train_defaults(&settings, "text", &err);
    if (!st) {
        settings.model = "palimpsa-d";
        settings.hidden = 64;
        settings.layers = 2;
        settings.data = argv[1];
        settings.tokenizer = "chars";
        settings.steps = atoll(argv[3]);
        settings.row = settings.context = 128;
        st = pal_train_run(argv[2], before ? NULL : &settings, &options, cx, &result, &err);
    }
    if (st && st != PAL_STOPPED) fprintf(stderr, "%s\n", err.text);
    else printf("%s at update %" PRId64 "\n", st ? "stopped" : "finished", result.step);
    pal_context_free(cx);
    return st && st != PAL_STOPPED ? 2 : 0;
}
