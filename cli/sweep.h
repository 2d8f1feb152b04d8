/* SPDX-License-Identifier: MIT */
/* A grid of runs, what is known of it, and what is said of it in the end. cmd_sweep.c trains it. */
#ifndef PAL_CLI_SWEEP_H
#define PAL_CLI_SWEEP_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>

enum { SWEEP_ENTRIES = 64, SWEEP_STAGES = 16, SWEEP_ARGUMENTS = 128, SWEEP_PATH = 4096, SWEEP_WORDS = 8 };

/* One list option, cut at its commas. */
typedef struct {
    char *text;
    const char *entry[SWEEP_ENTRIES];
    int count;
} word_list;

/* The arguments of train for an entry of --models: palimpsa-d:mesa:head-dim=32 is --model=palimpsa-d --rule=mesa
 * --head-dim=32. */
typedef struct {
    char *argument[SWEEP_WORDS];
    int count;
} model_words;

typedef struct {
    int model, rate, seed; /* places in the lists */
    int stages;            /* of its results; 0: not finished */
    double accuracy[SWEEP_STAGES];
    long long steps[SWEEP_STAGES];
    int length[SWEEP_STAGES], pairs[SWEEP_STAGES];
    bool left_out; /* at a rate that the search did not pick, or has not come to */
    int place;     /* where it runs (sweep_farm.h); 0: nowhere */
    int restarts;
    double started;
} sweep_run;

typedef struct {
    const char *out;
    word_list models, rates, seeds, search_seeds;
    word_list endpoint;               /* lengths whose mean accuracy decides; empty: all */
    model_words words[SWEEP_ENTRIES]; /* of each model */
    const char *search;               /* stages of the search for a rate, or NULL */
    int extend;            /* rates on each side that the search may add where the best one lies at the edge */
    const char *train;     /* file of options for train, or NULL */
    json_t *train_options; /* what it holds */
    const char **extra;    /* further arguments for train */
    int extra_count, jobs, threads;
    char threads_text[16];
    sweep_run *runs;
    size_t count;
    bool stopping; /* the runs were asked to stop */
} sweep;

/* A row of results.csv. */
typedef struct {
    char model[256], rate[64], seed[64];
    int stage, length, pairs; /* stage from 1 on */
    double accuracy;
    long long steps;
    double value; /* of the column asked for, else the accuracy */
} sweep_row;
/* Hands over the rows of a results.csv, until one is not CLI_OK. column: a further column to read, or NULL. */
typedef int sweep_take_row(void *user, const char *path, int line, const sweep_row *row);
int sweep_each_row(const char *path, const char *column, sweep_take_row *take, void *user);
/* What a run's directory and its curve are called; returns the length, which may be more than there is room for. */
int sweep_name(char name[256], const char *model, const char *rate, const char *seed);

/* sweep_rows.c: files of the sweep. Functions that return an int return a CLI code, the sentence already said. */
int sweep_find(const word_list *list, const char *word); /* its place, or -1 */
int sweep_join(char path[SWEEP_PATH], const char *folder, const char *name);
void sweep_run_name(const sweep *s, const sweep_run *r, char name[256]);
int sweep_check_names(const sweep *s); /* of the runs: none too long, no two the same */
/* Path of a run's directory, or of a file in it. */
int sweep_run_path(const sweep *s, const sweep_run *r, const char *file, char path[SWEEP_PATH]);
sweep_run *sweep_at(const sweep *s, int model, int rate, int seed);
/* Writes DIR/sweep.json, or refuses a directory that another configuration began. */
int sweep_check_description(const sweep *s);
/* Takes over the rows of an earlier start from DIR/results.csv. */
int sweep_read_results(sweep *s);
int sweep_write_results(const sweep *s);
/* The last accuracy of every stage of a run that ended; its curve goes to DIR/curves. */
int sweep_read_run(const sweep *s, sweep_run *r);
/* Writes DIR/name with print, whole or not at all. */
int sweep_write(const sweep *s, const char *name, void (*print)(FILE *to, const sweep *s));

/* sweep_grid.c: lists and what follows from them. */
int sweep_split(word_list *list, const char *option, const char *text);
/* Whether a stage of this length counts for an endpoint. */
bool sweep_counts(const word_list *endpoint, int length);
/* Refuses an endpoint with a length that no stage has. */
int sweep_check_endpoint(const word_list *endpoint, const int *length, int stages);
/* The words of every model. */
int sweep_read_models(sweep *s);
int sweep_check_extra(const char *word); /* a word for train that is not the sweep's to say */
void sweep_free_lists(sweep *s);
/* Puts s->extend more rates on each side of the list, in the same ratio. */
int sweep_extend_rates(sweep *s);
/* Of a search: leaves out the rates that were added and that no run of an earlier start came to. */
void sweep_leave_out_added(sweep *s);
/* Takes in one more rate for each model whose best one lies at the edge of those tried; false: there is none. */
bool sweep_widen(sweep *s);

/* sweep_report.c */
/* After the runs: refuses an endpoint that they do not have. */
int sweep_check_stages(const sweep *s);
/* The rate with the best mean accuracy over the stages that count. */
int sweep_best_rate(const sweep *s, int model);
void sweep_print_table(FILE *to, const sweep *s);
int sweep_draw(const sweep *s);

#endif
