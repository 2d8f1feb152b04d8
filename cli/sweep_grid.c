/* SPDX-License-Identifier: MIT */
/* The lists of a sweep: what the entries of --models say, and rates beyond those that were given. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "cli.h"
#include "sweep.h"

int sweep_split(word_list *list, const char *option, const char *text) {
    list->text = pal_strdup(text);
    char *rest = list->text;
    for (char *entry; rest && (entry = strsep(&rest, ","));) {
        if (!*entry) continue;
        if (list->count == SWEEP_ENTRIES)
            return cli_error(CLI_USAGE, "--%s: at most %d entries", option, SWEEP_ENTRIES);
        if (sweep_find(list, entry) >= 0) return cli_error(CLI_USAGE, "--%s: '%s' is listed twice", option, entry);
        list->entry[list->count++] = entry;
    }
    return list->count ? CLI_OK : cli_error(CLI_USAGE, "--%s '%s': expected a list separated by commas", option, text);
}

bool sweep_counts(const word_list *endpoint, int length) {
    bool counts = !endpoint->count;
    for (int i = 0; i < endpoint->count; i++) counts |= atoi(endpoint->entry[i]) == length;
    return counts;
}

int sweep_check_endpoint(const word_list *endpoint, const int *length, int stages) {
    for (int i = 0; i < endpoint->count; i++) {
        bool found = false;
        for (int k = 0; k < stages; k++) found |= atoi(endpoint->entry[i]) == length[k];
        if (!found) return cli_error(CLI_USAGE, "--endpoint: no stage has a length of '%s'", endpoint->entry[i]);
    }
    return CLI_OK;
}

/* Whether a word for train is this option. */
static bool is_option(const char *word, const char *name) {
    const size_t dashes = strspn(word, "-"), length = strlen(name);
    if (dashes < 1 || dashes > 2 || strncmp(word + dashes, name, length) != 0) return false;
    return word[dashes + length] == '\0' || word[dashes + length] == '=';
}

int sweep_check_extra(const char *word) {
    static const char *const own[] = { "out", "resume", "dry-run" };
    if (is_option(word, "config") || is_option(word, "recipe"))
        return cli_error(CLI_USAGE, "sweep: %s after '--': give a file of options for train by --train FILE", word);
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
        if (is_option(word, own[i]))
            return cli_error(
                CLI_USAGE,
                "sweep: %s among the options of train: the sweep decides where runs go and whether they resume", word);
    return CLI_OK;
}

/* The first word is the model, one with '=' an option of train, any other a rule. */
static int read_model(const char *entry, model_words *words) {
    for (const char *at = entry; at; at = strchr(at, ':') ? strchr(at, ':') + 1 : NULL) {
        const int length = (int)strcspn(at, ":");
        char text[256];
        if (!length) return cli_error(CLI_USAGE, "--models '%s': expected MODEL:RULE or MODEL:OPTION=VALUE", entry);
        if (words->count == SWEEP_WORDS)
            return cli_error(CLI_USAGE, "--models '%s': at most %d words", entry, SWEEP_WORDS);
        const char *option = at == entry ? "model=" : memchr(at, '=', (size_t)length) ? "" : "rule=";
        if (snprintf(text, sizeof text, "--%s%.*s", option, length, at) >= (int)sizeof text)
            return cli_error(CLI_USAGE, "--models '%s': a word of more than 240 letters", entry);
        const int code = sweep_check_extra(text);
        if (code) return code;
        if (!(words->argument[words->count] = pal_strdup(text)))
            return cli_error(CLI_FAILED, "sweep: out of memory for the list of models");
        words->count++;
    }
    return CLI_OK;
}

int sweep_read_models(sweep *s) {
    int code = CLI_OK;
    for (int i = 0; i < s->models.count && !code; i++) code = read_model(s->models.entry[i], &s->words[i]);
    return code;
}

void sweep_free_lists(sweep *s) {
    for (int i = 0; i < SWEEP_ENTRIES; i++)
        for (int k = 0; k < s->words[i].count; k++) pal_free(s->words[i].argument[k]);
    pal_free(s->models.text), pal_free(s->rates.text), pal_free(s->seeds.text), pal_free(s->search_seeds.text);
    pal_free(s->endpoint.text);
}

int sweep_extend_rates(sweep *s) {
    enum { DIGITS = 24 };
    const int given = s->rates.count, added = s->extend;
    double rate[SWEEP_ENTRIES] = { 0 };
    if (!added) return CLI_OK;
    if (!s->search) return cli_error(CLI_USAGE, "--extend goes with --search");
    if (added < 0 || added > (SWEEP_ENTRIES - given) / 2)
        return cli_error(CLI_USAGE, "--extend %d: expected 0 or more, and at most %d rates in all", added,
                         SWEEP_ENTRIES);
    for (int i = 0; i < given; i++) {
        rate[i] = strtod(s->rates.entry[i], NULL);
        if (!(rate[i] > (i ? rate[i - 1] : 0)))
            return cli_error(CLI_USAGE, "--lrs: --extend needs rates above 0 that rise, found '%s'", s->rates.entry[i]);
    }
    char *text = pal_alloc((size_t)given + 2 * (size_t)added, DIGITS);
    if (!text) return cli_error(CLI_FAILED, "sweep: out of memory for the list of rates");
    const double down = given > 1 ? rate[0] / rate[1] : 0.5, up = given > 1 ? rate[given - 1] / rate[given - 2] : 2;
    word_list wider = { .text = text, .count = given + 2 * added };
    double low = rate[0], high = rate[given - 1];
    for (int i = 0; i < wider.count; i++) wider.entry[i] = text + i * DIGITS;
    for (int i = 0; i < given; i++) {
        if (strlen(s->rates.entry[i]) >= DIGITS) {
            pal_free(text);
            return cli_error(CLI_USAGE, "--lrs '%s': expected a number of fewer digits", s->rates.entry[i]);
        }
        strcpy(text + (added + i) * DIGITS, s->rates.entry[i]);
    }
    for (int i = 1; i <= added; i++) {
        snprintf(text + (added - i) * DIGITS, DIGITS, "%.3g", low *= down);
        snprintf(text + (added + given - 1 + i) * DIGITS, DIGITS, "%.3g", high *= up);
    }
    pal_free(s->rates.text);
    s->rates = wider;
    return CLI_OK;
}

static bool tried(const sweep *s, int model, int rate) { return !sweep_at(s, model, rate, 0)->left_out; }

static void leave_out(sweep *s, int model, int rate, bool left_out) {
    for (int d = 0; d < s->seeds.count; d++) sweep_at(s, model, rate, d)->left_out = left_out;
}

void sweep_leave_out_added(sweep *s) {
    for (int m = 0; m < s->models.count; m++)
        for (int l = 0; l < s->rates.count; l++) {
            bool wanted = l >= s->extend && l < s->rates.count - s->extend;
            for (int d = 0; d < s->seeds.count; d++) wanted |= sweep_at(s, m, l, d)->stages > 0;
            leave_out(s, m, l, !wanted);
        }
}

bool sweep_widen(sweep *s) {
    bool wider = false;
    for (int m = 0; m < s->models.count; m++) {
        const int best = sweep_best_rate(s, m);
        for (int l = best - 1; l <= best + 1; l += 2) {
            if (l < 0 || l >= s->rates.count || tried(s, m, l)) continue;
            leave_out(s, m, l, false);
            wider = true;
        }
    }
    return wider;
}
