/* SPDX-License-Identifier: MIT */
/* Models by name. Sizes are those of the paper's tables and of the published Mamba2 family. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/context.h"
#include "base/nearest.h"
#include "base/size.h"
#include "model/config.h"

/* Language models at the paper's two sizes and at two smaller ones (with 32,000 ids), the official Mamba2 family, and
 * the small sizes of the two tasks. */
typedef struct {
    const char *size; /* after the family's name; "mqar" and "text" stand for a bare name with that task */
    int hidden, layers, heads, head_dim, state; /* state: key width of M; 0 elsewhere */
    double expand_v;
    int vocab;
} preset_size;

static const preset_size sizes_d[] = {
    { "170m", 768, 19, 16, 48, 0, 1, 32000 },
    { "760m", 1536, 19, 16, 96, 0, 2, 32000 },
    { "15m", 256, 8, 8, 32, 0, 1, 32000 },
    { "60m", 512, 12, 16, 32, 0, 1, 32000 },
    { "mqar", 128, 2, 8, 16, 0, 2, 8192 },
    { "text", 192, 4, 6, 32, 0, 1, 256 },
    { 0 },
};
static const preset_size sizes_m[] = {
    { "170m", 768, 30, 16, 96, 48, 0, 32000 },
    { "760m", 1536, 38, 16, 192, 96, 0, 32000 },
    { "15m", 256, 13, 8, 64, 32, 0, 32000 },
    { "60m", 512, 20, 16, 64, 32, 0, 32000 },
    { "mqar", 128, 2, 8, 32, 16, 0, 8192 },
    { "text", 192, 6, 6, 64, 32, 0, 256 },
    { 0 },
};
static const preset_size sizes_attention[] = {
    { "170m", 768, 20, 16, 48, 0, 1, 32000 },
    { "760m", 1536, 25, 16, 96, 0, 1, 32000 },
    { "15m", 256, 8, 8, 32, 0, 1, 32000 },
    { "60m", 512, 13, 16, 32, 0, 1, 32000 },
    { "mqar", 128, 2, 8, 16, 0, 1, 8192 },
    { "text", 192, 4, 6, 32, 0, 1, 256 },
    { 0 },
};
static const preset_size sizes_mamba2[] = {
    { "130m", 768, 24, 24, 64, 128, 0, 50277 },  { "370m", 1024, 48, 32, 64, 128, 0, 50277 },
    { "780m", 1536, 48, 48, 64, 128, 0, 50277 }, { "1.3b", 2048, 48, 64, 64, 128, 0, 50277 },
    { "2.7b", 2560, 64, 80, 64, 128, 0, 50277 }, { 0 },
};

/* name, mixer, metaplastic, official, sizes, and which names the sizes make */
#define FAMILIES(FAMILY)                                                                \
    FAMILY("palimpsa-d", PAL_MIXER_D, true, false, sizes_d, LANGUAGE)                   \
    FAMILY("palimpsa-d-wo-meta", PAL_MIXER_D, false, false, sizes_d, LANGUAGE)          \
    FAMILY("palimpsa-m", PAL_MIXER_M, true, false, sizes_m, LANGUAGE)                   \
    FAMILY("palimpsa-m-wo-meta", PAL_MIXER_M, false, false, sizes_m, LANGUAGE)          \
    FAMILY("gated-deltanet", PAL_MIXER_GDN, false, false, sizes_d, LANGUAGE)            \
    FAMILY("transformer", PAL_MIXER_ATTENTION, false, false, sizes_attention, LANGUAGE) \
    FAMILY("mamba2", PAL_MIXER_M, false, true, sizes_mamba2, OFFICIAL)
#define LANGUAGE(name) name, name "-15m", name "-60m", name "-170m", name "-760m",
#define OFFICIAL(name) name "-130m", name "-370m", name "-780m", name "-1.3b", name "-2.7b",

typedef struct {
    const char *name;
    pal_mixer mixer;
    bool metaplastic, official;
    const preset_size *sizes;
} preset_family;
static const preset_family families[] = {
#define FAMILY(name, mixer, metaplastic, official, sizes, made) { name, mixer, metaplastic, official, sizes },
    FAMILIES(FAMILY)
#undef FAMILY
};
static const char *const names[] = {
#define FAMILY(name, mixer, metaplastic, official, sizes, made) made(name)
    FAMILIES(FAMILY)
#undef FAMILY
        NULL
};

const char *pal_model_preset_at(int index) {
    return index >= 0 && (size_t)index < PAL_COUNT(names) - 1 ? names[index] : NULL;
}

static pal_status unknown(const char *name, pal_error *err) {
    const char *nearest = pal_nearest(name, names);
    if (nearest) return pal_fail(err, PAL_E_ARGUMENT, "no model is named '%.60s'; did you mean '%s'?", name, nearest);
    return pal_fail(
        err, PAL_E_ARGUMENT,
        "no model is named '%.60s'; names begin with palimpsa-d, palimpsa-m, gated-deltanet, transformer or mamba2-",
        name);
}

/* The family of a name, and what follows it: a size, or "". */
static const preset_family *find_family(const char *name, const char **size) {
    for (size_t f = 0; f < PAL_COUNT(families); f++) {
        const size_t length = strlen(families[f].name);
        if (strncmp(name, families[f].name, length) != 0 || (name[length] && name[length] != '-')) continue;
        *size = name + length + (name[length] == '-');
        for (const preset_size *s = families[f].sizes; s->size; s++)
            if (!**size || strcmp(s->size, *size) == 0) return &families[f];
    }
    return NULL; /* of families whose names begin alike, the one that has the size is meant */
}

static bool is_task(const char *word) { return strcmp(word, "mqar") == 0 || strcmp(word, "text") == 0; }

static pal_status find(const char *name, const char *task, const preset_family **family, const preset_size **size,
                       pal_error *err) {
    const char *wanted;
    if (task && !is_task(task)) return pal_fail(err, PAL_E_ARGUMENT, "task '%.40s': expected mqar or text", task);
    const preset_family *f = find_family(name, &wanted);
    if (!f || is_task(wanted)) return unknown(name, err);
    if (!*wanted && f->official) /* its sizes are not those of a task */
        return pal_fail(err, PAL_E_ARGUMENT, "model '%s' needs a size, as %s-%s", name, name, f->sizes[0].size);
    if (!*wanted && !task)
        return pal_fail(err, PAL_E_ARGUMENT, "model '%s' needs a size (%s-%s) or a task", name, name, f->sizes[0].size);
    *family = f;
    for (*size = f->sizes; strcmp((*size)->size, *wanted ? wanted : task) != 0; ++*size) continue;
    return PAL_OK;
}

static int chosen(int asked, int preset) { return asked ? asked : preset; }

/* Heads and their width. A head count without a head width keeps the preset's total width, and the other way round. */
static int choose_heads(pal_model_config *c, const pal_preset_options *o, const preset_size *s, long long total) {
    pal_mixer_spec *m = pal_config_mixer(c);
    m->heads = o->heads ? o->heads : o->head_dim > 0 ? (int)(total / o->head_dim) : s->heads;
    /* Heads of these two share the width out evenly, in attention two channels at a time. */
    const int unit = pal_config_kinds[m->kind].attends ? 2 : 1;
    if (!o->heads && !o->head_dim && (m->kind == PAL_MIXER_M || unit == 2))
        while (m->heads > 1 && total % (m->heads * unit)) m->heads--;
    return o->head_dim ? o->head_dim : m->heads > 0 ? (int)(total / m->heads) : 0;
}

static pal_status shape_m(pal_model_config *c, const char *name, int state, int head_dim, long long total,
                          pal_error *err) {
    pal_mixer_spec *m = pal_config_mixer(c);
    m->dv = head_dim;
    m->dk = state;
    m->key_heads = c->official ? 1 : m->heads;
    m->proj_bias = c->mqar;
    m->conv_bias = !c->mqar;
    c->rescale_residual = !c->mqar;
    if ((long long)m->heads * m->dv == total) return PAL_OK;
    return pal_fail(err, PAL_E_ARGUMENT, "model '%s': %d heads of %d do not make %lld inner channels", name, m->heads,
                    m->dv, total);
}

static pal_status shape_others(pal_model_config *c, const char *name, double expand_v, int head_dim, pal_error *err) {
    pal_mixer_spec *m = pal_config_mixer(c);
    const bool attends = pal_config_kinds[m->kind].attends;
    m->dk = head_dim;
    m->rotary = attends ? head_dim : 0;
    m->dv = attends ? m->dk : pal_count_of(head_dim * expand_v);
    m->key_heads = m->heads;
    if (!attends || (long long)m->heads * m->dk == c->hidden) return PAL_OK;
    return pal_fail(err, PAL_E_ARGUMENT, "model '%s': %d heads of %d do not make the hidden size, %d", name, m->heads,
                    m->dk, c->hidden);
}

static pal_status choose_rule(pal_model_config *c, const char *name, const char *rule, pal_error *err) {
    pal_mixer_spec *m = pal_config_mixer(c);
    if (!rule) return PAL_OK;
    if (m->kind != PAL_MIXER_D)
        return pal_fail(err, PAL_E_ARGUMENT, "model '%s': a rule can be chosen for palimpsa-d only", name);
    if (strlen(rule) >= sizeof m->rule) return pal_fail(err, PAL_E_ARGUMENT, "no rule is named '%.60s'", rule);
    strcpy(m->rule, rule);
    return PAL_OK;
}

static pal_status choose_forgetting(pal_model_config *c, const char *name, const char *forgetting, pal_error *err) {
    if (!forgetting) return PAL_OK;
    if (!c->mqar && !c->recall_init)
        return pal_fail(err, PAL_E_ARGUMENT, "model '%s': only models for recall start with a choice of forgetting",
                        name);
    if (pal_forgetting_named(&c->forgetting, forgetting)) return PAL_OK;
    return pal_fail(err, PAL_E_ARGUMENT, "forgetting '%.40s': expected small, normal or very_small", forgetting);
}

pal_status pal_model_preset(pal_model_config *c, const char *name, const pal_preset_options *options, pal_error *err) {
    static const pal_preset_options none = { 0 };
    const pal_preset_options *o = options ? options : &none;
    const preset_family *family = NULL;
    const preset_size *s = NULL;
    pal_status st;
    if (pal_is_pattern(name)) return pal_model_from_pattern(c, name, o, err);
    if ((st = find(name, o->task, &family, &s, err))) return st;
    pal_config_defaults(c, family->mixer);
    pal_mixer_spec *m = pal_config_mixer(c);
    c->official = family->official;
    c->mqar = o->task && strcmp(o->task, "mqar") == 0;
    if (c->official && c->mqar)
        return pal_fail(err, PAL_E_ARGUMENT,
                        "model '%s' is a language model; for mqar, Mamba2 is named palimpsa-m-wo-meta", name);
    if (c->official && o->recall_init)
        return pal_fail(err, PAL_E_ARGUMENT,
                        "model '%s' starts as its authors have it; palimpsa-m-wo-meta can start as for recall", name);
    c->metaplasticity = family->metaplastic || !pal_mixer_may_gate(m);
    c->hidden = chosen(o->hidden, s->hidden);
    c->layers = chosen(o->layers, s->layers);
    c->vocab = c->vocab_rows = chosen(o->vocab, s->vocab);
    if (c->official) c->vocab_rows = pal_count_of(16 * ceil(c->vocab / 16.0));
    if (c->mqar) c->norm_eps = 1e-5;
    if (!c->mqar && m->kind != PAL_MIXER_M) {
        c->block[0].form = PAL_MLP_SWIGLU;
        c->block[0].mlp = chosen(o->mlp, pal_config_mlp_width(c->hidden, 4));
    }
    if (pal_config_kinds[m->kind].taps) m->conv = 4;
    const long long total = (long long)s->heads * s->head_dim * c->hidden / s->hidden;
    const int head_dim = choose_heads(c, o, s, total);
    st = m->kind == PAL_MIXER_M ? shape_m(c, name, chosen(o->state_size, s->state), head_dim, total, err)
                                : shape_others(c, name, o->expand_v > 0 ? o->expand_v : s->expand_v, head_dim, err);
    if (st) return st;
    c->recall_init = o->recall_init && !c->mqar;
    if (c->recall_init) c->rescale_residual = false;
    if (m->kind == PAL_MIXER_D || (m->kind == PAL_MIXER_M && !c->official))
        m->rank = chosen(o->rank, pal_count_of(ceil(c->hidden / 16.0)));
    if ((st = choose_rule(c, name, o->rule, err))) return st;
    m->mesa_tolerance = o->mesa_tolerance;
    m->softplus_rate = o->softplus_rate;
    if (o->norm_groups) m->norm_groups = o->norm_groups;
    if ((st = choose_forgetting(c, name, o->forgetting, err))) return st;
    return pal_model_config_check(c, err);
}
