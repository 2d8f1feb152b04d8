/* SPDX-License-Identifier: MIT */
/* Models by a pattern of layers, "palimpsa-m:3,attention:1": what a layer of each kind looks like comes from the named
 * models (presets.c). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/context.h"
#include "model/config.h"
#include "palimpsa/memory.h"

enum { MOST_WORD = 40 };

typedef struct {
    const char *name; /* of the whole pattern, for messages */
    const char *size; /* "60m"; "": the task's */
    const pal_preset_options *options;
    pal_model_config *to;
    char texts[PAL_MAX_BLOCKS][2 * MOST_WORD]; /* of the blocks so far */
    bool metaplastic[PAL_MAX_BLOCKS];
    pal_error *err;
} pattern;

bool pal_is_pattern(const char *name) { return strpbrk(name, ",:+") != NULL; }

/* The named model whose mixer a word means; NULL: none. */
static const char *family_of(const char *word) {
    static const char *const same[] = { "palimpsa-d", "palimpsa-d-wo-meta", "palimpsa-m", "palimpsa-m-wo-meta",
                                        "gated-deltanet" };
    for (size_t i = 0; i < PAL_COUNT(same); i++)
        if (strcmp(word, same[i]) == 0) return same[i];
    if (strcmp(word, "mamba2") == 0) return "palimpsa-m-wo-meta";
    if (strcmp(word, "attention") == 0) return "transformer";
    return pal_memory_find(word) ? "palimpsa-d" : NULL; /* a rule on the D backbone */
}

/* What the named model is like, with those of the options that its mixer knows. */
static pal_status preset_of(const pattern *p, const char *family, const char *rule, pal_model_config *out) {
    char name[2 * MOST_WORD];
    pal_preset_options o = *p->options;
    const bool m = strncmp(family, "palimpsa-m", 10) == 0;
    snprintf(name, sizeof name, "%s%s%s", family, *p->size ? "-" : "", p->size);
    o.rule = rule;
    if (!rule || strcmp(rule, "mesa") != 0) o.mesa_tolerance = 0;
    if (!rule || strcmp(rule, "mamba3") != 0) o.softplus_rate = false;
    if (!m) o.norm_groups = 0;
    return pal_model_preset(out, name, &o, p->err);
}

static pal_status unknown_word(const pattern *p, const char *word) {
    return pal_fail(
        p->err, PAL_E_ARGUMENT,
        "model '%.60s': no layer is named '%.40s'; a layer is one of palimpsa-d, palimpsa-m (both also with "
        "-wo-meta), mamba2, gated-deltanet, attention, convolution, mlp, relu2 or the name of a memory "
        "rule, or some of them with '+'",
        p->name, word);
}

/* Adds what one word says to a block. */
static pal_status add_word(const pattern *p, const char *word, pal_block_spec *b, bool *metaplastic) {
    const bool gated = strcmp(word, "mlp") == 0;
    pal_model_config one;
    pal_status st;
    if (gated || strcmp(word, "relu2") == 0) {
        if (b->form) return pal_fail(p->err, PAL_E_ARGUMENT, "model '%.60s': a layer has one MLP, found two", p->name);
        b->form = gated ? PAL_MLP_SWIGLU : PAL_MLP_RELU2;
        b->mlp = p->options->mlp ? p->options->mlp : pal_config_mlp_width(p->to->hidden, gated ? 4 : 6);
        return PAL_OK;
    }
    if (b->form)
        return pal_fail(p->err, PAL_E_ARGUMENT, "model '%.60s': the MLP of a layer comes last, found '%s' after it",
                        p->name, word);
    if (b->mixers == PAL_BLOCK_MIXERS)
        return pal_fail(p->err, PAL_E_ARGUMENT, "model '%.60s': a layer has at most two mixers, found a third, '%s'",
                        p->name, word);
    pal_mixer_spec *m = &b->mixer[b->mixers++];
    if (strcmp(word, "convolution") == 0) {
        *m = pal_mixer_spec_of(PAL_MIXER_CONV);
        m->heads = m->key_heads = 1;
        m->dk = m->dv = p->to->hidden;
        m->conv = 4;
        return PAL_OK;
    }
    const char *family = family_of(word), *rule = pal_memory_find(word) && strcmp(word, "attention") ? word : NULL;
    if (!family) return unknown_word(p, word);
    if ((st = preset_of(p, family, rule, &one))) return st;
    *m = *pal_config_mixer(&one);
    *metaplastic |= pal_mixer_may_gate(m) && one.metaplasticity && strcmp(m->rule, "palimpsa") == 0;
    return PAL_OK;
}

/* The block that a text like "palimpsa-m+attention" means: one that there is, or a new one. */
static pal_status block_of(pattern *p, const char *text, int *block) {
    pal_model_config *c = p->to;
    char word[MOST_WORD];
    for (*block = 0; *block < c->blocks; ++*block)
        if (strcmp(p->texts[*block], text) == 0) return PAL_OK;
    if (c->blocks == PAL_MAX_BLOCKS)
        return pal_fail(p->err, PAL_E_ARGUMENT, "model '%.60s': more than %d kinds of layers", p->name, PAL_MAX_BLOCKS);
    pal_block_spec *b = &c->block[c->blocks];
    *b = (pal_block_spec){ 0 };
    for (const char *from = text; from; from = strchr(from, '+') ? strchr(from, '+') + 1 : NULL) {
        const size_t length = strcspn(from, "+");
        if (!length || length >= sizeof word) return unknown_word(p, from);
        memcpy(word, from, length);
        word[length] = 0;
        const pal_status st = add_word(p, word, b, &p->metaplastic[c->blocks]);
        if (st) return st;
    }
    strcpy(p->texts[c->blocks++], text);
    return PAL_OK;
}

/* One part, "palimpsa-m+mlp:3", of `length` characters: appends its layers to `period`. */
static pal_status read_part(pattern *p, const char *part, size_t length, int *period, int *layers) {
    char text[2 * MOST_WORD];
    const char *colon = memchr(part, ':', length);
    const size_t words = colon ? (size_t)(colon - part) : length;
    char *end = NULL;
    const long count = colon ? strtol(colon + 1, &end, 10) : 1;
    int block;
    if (colon && (end != part + length || end == colon + 1 || count < 1 || count > PAL_MAX_LAYERS - *layers))
        return pal_fail(p->err, PAL_E_ARGUMENT,
                        "model '%.60s': '%.*s' ends in no number of layers; expected 1 to %d after the colon, as in "
                        "palimpsa-m:3,attention:1",
                        p->name, (int)length, part, PAL_MAX_LAYERS);
    if (words >= sizeof text || *layers == PAL_MAX_LAYERS) return unknown_word(p, part);
    memcpy(text, part, words);
    text[words] = 0;
    const pal_status st = block_of(p, text, &block);
    if (st) return st;
    for (long i = 0; i < count; i++) period[(*layers)++] = block;
    return PAL_OK;
}

/* "-60m" at the end of the first word is the size of all. */
static const char *size_in(const char *name, size_t *length) {
    static const char *const sizes[] = { "15m", "60m", "170m", "760m" };
    const size_t word = strcspn(name, ",:+");
    for (size_t i = 0; i < PAL_COUNT(sizes); i++) {
        const size_t n = strlen(sizes[i]);
        *length = word - n - 1;
        if (word > n + 1 && name[*length] == '-' && strncmp(name + word - n, sizes[i], n) == 0) return sizes[i];
    }
    *length = word;
    return "";
}

/* What all layers share, from the first one's named model; `first` is the pattern's first word. */
static pal_status start(pattern *p, const char *first) {
    const char *family = family_of(first);
    pal_model_config *c = p->to;
    const pal_status st = preset_of(p, family ? family : "transformer", NULL, c);
    if (st) return st;
    c->blocks = 0;
    c->hybrid = c->listed = c->metaplasticity = true;
    c->rescale_residual = false;
    c->norm_eps = 1e-5;
    memset(c->block, 0, sizeof c->block);
    memset(c->metaplastic, 0, sizeof c->metaplastic);
    return PAL_OK;
}

static pal_status read_parts(pattern *p, const char *parts, int *period, int *layers) {
    for (const char *part = parts;; part += strcspn(part, ",") + 1) {
        const size_t length = strcspn(part, ",");
        const pal_status st = read_part(p, part, length, period, layers);
        if (st || !part[length]) return st;
    }
}

pal_status pal_model_from_pattern(pal_model_config *c, const char *name, const pal_preset_options *o, pal_error *err) {
    enum { MOST_NAME = 1024 };
    char parts[MOST_NAME], first[MOST_NAME];
    int period[PAL_MAX_LAYERS], layers = 0;
    size_t word;
    pal_status st;
    pattern p = { .name = name, .options = o, .to = c, .err = err };
    p.size = size_in(name, &word);
    if (strlen(name) >= sizeof parts)
        return pal_fail(err, PAL_E_ARGUMENT, "model '%.60s...': a pattern of layers has at most %d characters", name,
                        MOST_NAME - 1);
    if (o->rule)
        return pal_fail(err, PAL_E_ARGUMENT,
                        "model '%.60s': in a pattern of layers a rule is named like a layer, as in '%.20s:3,attention'",
                        name, o->rule);
    snprintf(first, sizeof first, "%.*s", (int)word, name);
    snprintf(parts, sizeof parts, "%s%s", first, name + strcspn(name, ",:+"));
    if ((st = start(&p, first)) || (st = read_parts(&p, parts, period, &layers))) return st;
    /* Whole periods, as many as the named model has layers, unless a number is asked for. */
    if (!o->layers) c->layers = (c->layers + layers - 1) / layers * layers;
    if (c->layers > PAL_MAX_LAYERS) c->layers = PAL_MAX_LAYERS;
    for (int i = 0; i < c->layers; i++) {
        const int block = period[i % layers];
        c->layer_block[i] = (unsigned char)block;
        c->metaplastic[i] = p.metaplastic[block];
        if (c->block[block].mixers && c->block[block].mixer[0].kind == PAL_MIXER_M && !c->mqar && !c->recall_init)
            c->rescale_residual = true;
    }
    return pal_model_config_check(c, err);
}
