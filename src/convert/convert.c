/* SPDX-License-Identifier: MIT */
/* A source, a list of what the target holds, and a writer: the list is made and checked before anything is written. */
#include "palimpsa/convert.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/blocks.h"
#include "base/context.h"
#include "base/log.h"
#include "convert/attach.h"
#include "format/families/family.h"
#include "format/gguf_writer.h"
#include "format/json.h"
#include "format/model_writer.h"
#include "format/view.h"
#include "model/model.h"
#include "text/gguf_export.h"

static const char *const names[PAL_LAYOUTS] = { "palimpsa", "hf", "official", "gguf" };

const char *pal_layout_name(pal_layout layout) { return (unsigned)layout < PAL_LAYOUTS ? names[layout] : NULL; }

typedef struct {
    const char *target;
    const pal_convert_options *options;
    pal_model *model;
    pal_model_config config; /* of the target */
    pal_attachment attached;
    bool mamba2;              /* the GGUF is one of plain Mamba2 */
    const pal_family *family; /* whose names the target gets; NULL: none */
    json_t *pairs;            /* of its GGUF file */
    pal_source view;          /* the tensors under those names */
    bool cast;                /* options name a dtype */
    pal_dtype dtype;
    size_t count;
    pal_tensor *tensors;       /* as they shall be; names and dtypes may differ from the source's */
    const pal_tensor **source; /* where each comes from */
    pal_dtype *types;          /* that each gets */
    pal_converted report;
    pal_error *err;
} conversion;

static pal_status read_dtype(conversion *c) {
    const char *name = c->options->dtype;
    if (!name) return PAL_OK;
    c->cast = true;
    const size_t length = strlen(name);
    c->dtype = pal_dtype_named(name, length);
    if (c->dtype == PAL_DTYPES && length == 6 && strchr("sSmM", name[5]) && name[4] == '_') { /* a mixture of types */
        c->dtype = pal_dtype_named(name, 4);
        if (c->dtype < PAL_DTYPES) pal_warn("%s is a mixture of types; all matrices become %.4s", name, name);
    }
    if (c->dtype == PAL_DTYPES)
        return pal_fail(c->err, PAL_E_ARGUMENT,
                        "dtype is '%.20s'; expected f32, bf16, f16, q8_0, q6_k, q5_k, q5_0, q4_k or q4_0", name);
    if (pal_dtype_values(c->dtype) > 1 && c->options->to != PAL_LAYOUT_GGUF)
        return pal_fail(c->err, PAL_E_ARGUMENT, "dtype %s is for GGUF only; %s holds f32, bf16 or f16", name,
                        names[c->options->to]);
    return PAL_OK;
}

static const char *path_of(const conversion *c) { return c->model->source.path; }

/* What stands against a plain Mamba2 of another program. */
static pal_status check_plain(const conversion *c, pal_error *err) {
    const pal_model_config *m = &c->model->config;
    const char *to = names[c->options->to];
    const bool gguf = c->options->to == PAL_LAYOUT_GGUF, official = c->options->to == PAL_LAYOUT_OFFICIAL;
    char kind[64];
    pal_model_describe(m, kind);
    int on = 0;
    for (int i = 0; i < m->layers; i++) on += strcmp(pal_model_layer_rule(m, i), "gla") != 0;
    const pal_mixer_spec *x = pal_model_mixer(m);
    if (m->hybrid || m->mqar || x->kind != PAL_MIXER_M)
        return pal_fail(err, PAL_E_UNSUPPORTED, "%s is %s; %s holds plain Mamba2%s", path_of(c), kind, to,
                        official ? " alone" : " and published families alone");
    if (on)
        return pal_fail(err, PAL_E_UNSUPPORTED,
                        "%s: %d of %d layers are metaplastic; %s holds plain Mamba2 only, which would ignore their "
                        "importance and compute something else",
                        path_of(c), on, m->layers, to);
    if (x->norm_groups != x->key_heads)
        return pal_fail(err, PAL_E_UNSUPPORTED,
                        "%s: the gated norm has %d group%s and the keys %d; %s takes the norm per group of keys%s",
                        path_of(c), x->norm_groups, x->norm_groups == 1 ? "" : "s", x->key_heads, to,
                        gguf || official ? "" : " (transformers since 5.23.0)");
    if (c->options->to == PAL_LAYOUT_HF && pal_mixer_inner(x) % m->hidden)
        return pal_fail(err, PAL_E_UNSUPPORTED,
                        "%s: has %d channels inside for a hidden size of %d; Hugging Face's Mamba2 takes a whole "
                        "multiple only",
                        path_of(c), pal_mixer_inner(x), m->hidden);
    if (official && fabs(m->norm_eps - 1e-5) > 1e-12)
        return pal_fail(err, PAL_E_UNSUPPORTED, "%s: the norms' epsilon is %g; official Mamba2 has 1e-05", path_of(c),
                        m->norm_eps);
    if (!gguf) return PAL_OK;
    if (x->dt_low > 0 || isfinite(x->dt_high))
        return pal_fail(err, PAL_E_UNSUPPORTED,
                        "%s: the time step is limited to [%g, %g]; a GGUF of Mamba2 has no limit", path_of(c),
                        x->dt_low, x->dt_high);
    if (!x->conv_bias || x->proj_bias)
        return pal_fail(err, PAL_E_UNSUPPORTED,
                        "%s: %s; a GGUF of Mamba2 has biases in the convolutions and nowhere else", path_of(c),
                        x->proj_bias ? "the projections have biases" : "the convolutions have no bias");
    return PAL_OK;
}

/* Whether the family's own configuration still says what the model computes. */
static pal_status check_origin(const conversion *c, const pal_family *family, pal_error *err) {
    static const char *const keys[] = { "blocks",
                                        "layers",
                                        "hidden_size",
                                        "vocab_size",
                                        "norm_eps",
                                        "rope_theta",
                                        "embedding_multiplier",
                                        "logits_multiplier",
                                        "tie_word_embeddings",
                                        "metaplastic_layers" };
    pal_model_config plain;
    json_t *blocks = NULL, *said = NULL, *now = NULL;
    const json_t *origin = json_object_get(c->model->source.config, "origin");
    int on = 0;
    for (int i = 0; i < c->model->config.layers; i++) on += c->model->config.metaplastic[i];
    if (on)
        return pal_fail(
            err, PAL_E_UNSUPPORTED,
            "%s: %d of %d layers are metaplastic; %s of %s would ignore their importance and compute something "
            "else",
            path_of(c), on, c->model->config.layers, names[c->options->to], family->model_types[0]);
    pal_status st = pal_family_read(&blocks, family, origin, path_of(c), err);
    if (!st) st = pal_config_read(&plain, blocks, NULL, path_of(c), err);
    if (!st) {
        said = pal_config_write(&plain, NULL);
        now = pal_config_write(&c->model->config, NULL);
        if (!said || !now) st = pal_fail(err, PAL_E_MEMORY, "out of memory while reading %s", path_of(c));
    }
    for (size_t i = 0; i < PAL_COUNT(keys) && !st; i++) {
        const json_t *a = json_object_get(said, keys[i]), *b = json_object_get(now, keys[i]);
        if (a != b && !json_equal(a, b))
            st = pal_fail(err, PAL_E_UNSUPPORTED,
                          "%s: %s is not what the configuration under origin says, so that it is no %s", path_of(c),
                          keys[i], family->model_types[0]);
    }
    json_decref(blocks);
    json_decref(said);
    json_decref(now);
    return st;
}

/* The names of a published family, where the model is one of it. */
static pal_status take_family(conversion *c, pal_error *err) {
    const json_t *origin = json_object_get(c->model->source.config, "origin");
    const pal_family *family = origin ? pal_family_of(origin) : NULL;
    const bool gguf = c->options->to == PAL_LAYOUT_GGUF;
    pal_status st;
    if (!family || (gguf && !family->gguf)) return check_plain(c, err);
    if ((st = check_origin(c, family, err))) return st;
    if (gguf && (st = pal_family_to_gguf(&c->pairs, family, origin, path_of(c), err))) return st;
    if ((st = pal_view_export(&c->view, &c->model->source, family, gguf, err))) return st;
    c->family = family;
    return PAL_OK;
}

static void set_config(conversion *c) {
    pal_model_config *to = &c->config;
    *to = c->model->config;
    if (c->options->to == PAL_LAYOUT_OFFICIAL) to->official = true;
    else if (c->options->to != PAL_LAYOUT_GGUF && to->official) {
        to->official = false;
        to->metaplasticity = false;
        to->listed = true;
        memset(to->metaplastic, 0, sizeof to->metaplastic);
        pal_config_mixer(to)->rank = (to->hidden + 15) / 16; /* of gates that may come */
    }
}

/* In a GGUF file vectors are F32. A directory holds no blocks. */
static pal_dtype target_type(conversion *c, const pal_tensor *from, const pal_weight *w) {
    const bool blocks = pal_dtype_values(from->dtype) > 1;
    if (c->options->to != PAL_LAYOUT_GGUF) return c->cast ? c->dtype : blocks ? PAL_F32 : from->dtype;
    if (!c->cast) {
        const pal_block_format *format = w->quantisable ? pal_block_format_of(from->dtype) : NULL;
        return format && (size_t)w->shape[1] % format->values == 0 ? from->dtype : PAL_F32;
    }
    const pal_dtype type = pal_weight_type_in(w, c->dtype);
    c->report.finer += w->quantisable && !pal_matrix_fits(c->dtype, (size_t)w->shape[1]);
    return type;
}

static void add(conversion *c, const pal_tensor *from, const pal_weight *w, const char *name) {
    pal_tensor t = *from;
    t.name = name;
    t.dtype = c->types[c->count] = target_type(c, from, w);
    c->report.bytes += pal_tensor_bytes(&t);
    c->source[c->count] = from;
    c->tensors[c->count++] = t;
}

static pal_status plan_tensors(conversion *c) {
    const pal_weight_table *table = &c->model->table;
    const pal_source *source = &c->model->source;
    const size_t most = (c->family ? c->view.count : table->count) + 1;
    c->tensors = pal_alloc(most, sizeof *c->tensors);
    c->source = pal_alloc(most, sizeof *c->source);
    c->types = pal_alloc(most, sizeof *c->types);
    if (!c->tensors || !c->source || !c->types)
        return pal_fail(c->err, PAL_E_MEMORY, "out of memory for the list of tensors");
    const bool plain = c->options->to == PAL_LAYOUT_GGUF ? c->mamba2 : c->options->to != PAL_LAYOUT_PALIMPSA;
    for (size_t i = 0; i < c->view.count; i++) {
        const pal_weight *w = pal_model_find_weight(c->model, pal_view_ours(&c->view, i));
        if (w) add(c, &c->view.tensors[i], w, c->view.tensors[i].name); /* a tied head may lie there too */
    }
    for (size_t i = 0; i < table->count && !c->family; i++) {
        const pal_weight_entry *e = &table->entries[i];
        const pal_tensor *t = pal_source_find(source, e->view.name);
        if (!t) continue; /* part of a gate that nothing reads */
        if (e->view.unused && plain) {
            c->report.dropped++;
            continue;
        }
        const bool embedding = e->id == PAL_W_EMBEDDING;
        add(c, t, &e->view, embedding ? pal_config_embedding_name(&c->config) : e->view.name);
        if (embedding && c->options->to == PAL_LAYOUT_OFFICIAL && c->config.tied) add(c, t, &e->view, "lm_head.weight");
    }
    c->report.tensors = c->count;
    return PAL_OK;
}

static pal_status find_tokenizer(conversion *c) {
    const char *given = c->options->tokenizer;
    const pal_status st = pal_attachment_find(&c->attached, &c->model->source, given, (size_t)c->config.vocab, c->err);
    if (st) return st;
    c->report.tokenizer = c->attached.tokenizer != NULL;
    if (!c->report.tokenizer && !given && (c->mamba2 || c->pairs))
        return pal_fail(c->err, PAL_E_ARGUMENT,
                        "%s: has no tokenizer, which a GGUF file of Mamba2 or of a published family needs; name a "
                        "tokenizer: a file, a directory or 'none'",
                        path_of(c));
    return PAL_OK;
}

/* Hugging Face's class has ids of its own where a configuration states none, and would end a text at token 2. */
static void set_special_ids(const conversion *c, json_t *to) {
    static const char *const keys[] = { "bos_token_id", "eos_token_id", "pad_token_id" };
    const int64_t end = c->attached.tokenizer ? pal_tokenizer_eos(c->attached.tokenizer) : -1;
    pal_json_set(to, "eos_token_id", end >= 0 ? json_integer((json_int_t)end) : json_null());
    for (size_t i = 0; i < PAL_COUNT(keys); i++) {
        json_t *stated = json_object_get(c->model->source.config, keys[i]);
        if (stated) pal_json_set(to, keys[i], json_incref(stated));
    }
}

static json_t *family_config(const conversion *c) {
    static const char *const keys[] = { "dtype", "torch_dtype" }, *const types[] = { "float32", "bfloat16", "float16" };
    json_t *to = pal_family_text_config(c->family, json_object_get(c->model->source.config, "origin"));
    for (size_t i = 0; i < PAL_COUNT(keys) && c->cast; i++)
        if (json_object_get(to, keys[i]))
            pal_json_set(to, keys[i], json_string(types[c->dtype == PAL_BF16 ? 1 : c->dtype == PAL_F16 ? 2 : 0]));
    return pal_json_whole(to);
}

static json_t *make_config(const conversion *c) {
    if (c->family) return family_config(c);
    if (c->options->to != PAL_LAYOUT_HF)
        return pal_config_write_from(&c->config, &c->model->config, c->model->source.config);
    json_t *made = pal_config_write_hugging_face(&c->config);
    if (made) set_special_ids(c, made);
    return made;
}

static const pal_source *source_of(const conversion *c) { return c->family ? &c->view : &c->model->source; }

static pal_status write_directory(conversion *c) {
    pal_model_writer *w;
    pal_status st = pal_model_writer_open(&w, c->target, c->tensors, c->count, c->err);
    if (st) return st;
    size_t done = 0;
    for (size_t i = 0; i < c->count && !st; i++) {
        st = pal_model_writer_copy(w, i, source_of(c), c->source[i], c->err);
        done += pal_tensor_bytes(&c->tensors[i]);
        if (!st && c->options->progress && !c->options->progress(c->options->user, done, c->report.bytes))
            st = pal_fail(c->err, PAL_STOPPED, "%s: interrupted; nothing was written", c->target);
    }
    if (!st) st = pal_attachment_write(&c->attached, pal_model_writer_directory(w), c->err);
    if (st) {
        pal_model_writer_drop(w);
        return st;
    }
    json_t *config = make_config(c);
    if (!config) {
        pal_model_writer_drop(w);
        return pal_fail(c->err, PAL_E_MEMORY, "out of memory while writing %s", c->target);
    }
    st = pal_model_writer_commit(w, config, c->err);
    json_decref(config);
    return st;
}

static const char *architecture_of(const conversion *c) {
    static const char *const ours[PAL_MIXERS] = { [PAL_MIXER_D] = "palimpsa",
                                                  [PAL_MIXER_M] = "metamamba2",
                                                  [PAL_MIXER_GDN] = "palimpsa-gdn",
                                                  [PAL_MIXER_ATTENTION] = "palimpsa-transformer" };
    if (c->family) return c->family->gguf;
    if (c->config.hybrid) return "palimpsa-blocks";
    return c->mamba2 ? "mamba2" : ours[pal_config_mixer_of(&c->config)->kind];
}

static pal_status write_gguf(conversion *c) {
    const pal_model_config *m = &c->config;
    const pal_mixer_spec *x = pal_config_mixer_of(m); /* of plain Mamba2; other files have what config.json says */
    const pal_tokenizer *tokenizer = c->attached.tokenizer;
    pal_bytes pairs = { 0 };
    size_t pair_count = 0;
    const char *slash = strrchr(c->target, '/');
    const bool others = c->mamba2 || c->family; /* other programs read it */
    char *config = others ? NULL : pal_json_dumps(c->model->source.config, JSON_COMPACT);
    pal_status st = others ? pal_gguf_export(tokenizer, (size_t)m->vocab_rows, &pairs, &pair_count, c->err)
                           : pal_gguf_export_own(tokenizer, (size_t)m->vocab_rows, &pairs, &pair_count, c->err);
    if (!others && !config) st = pal_fail(c->err, PAL_E_MEMORY, "out of memory while writing %s", c->target);
    const pal_gguf_contents contents = { .architecture = architecture_of(c),
                                         .config = config,
                                         .family = c->pairs,
                                         .hidden = m->hidden,
                                         .layers = m->layers,
                                         .conv = x->conv,
                                         .inner = x->heads * x->dv,
                                         .state = x->dk,
                                         .heads = x->heads,
                                         .groups = x->key_heads,
                                         .vocab = m->vocab,
                                         .vocab_rows = m->vocab_rows,
                                         .eps = m->norm_eps,
                                         .name = slash ? slash + 1 : c->target,
                                         .pairs = pairs.data,
                                         .pairs_size = pairs.size,
                                         .pair_count = pair_count,
                                         .count = c->count,
                                         .tensors = c->source,
                                         .types = c->types,
                                         .cx = c->options->cx };
    if (!st) st = pal_gguf_write(c->target, source_of(c), &contents, c->options->progress, c->options->user, c->err);
    free(config);
    pal_bytes_free(&pairs);
    struct stat info;
    if (!st && stat(c->target, &info) == 0) c->report.bytes = (size_t)info.st_size;
    return st;
}

static pal_status convert(conversion *c, const char *source) {
    pal_status st;
    const bool gguf = c->options->to == PAL_LAYOUT_GGUF;
    if ((unsigned)c->options->to >= PAL_LAYOUTS)
        return pal_fail(c->err, PAL_E_ARGUMENT, "there is no layout %d", (int)c->options->to);
    if ((st = read_dtype(c)) || (st = pal_target_is_free(c->target, !gguf, c->err))) return st;
    /* As for training, heads come in the order of groups. */
    if ((st = pal_model_open_unloaded(&c->model, source, PAL_FOR_TRAINING, c->err))) return st;
    if (gguf) {
        pal_error why;
        st = take_family(c, &why);
        if (st == PAL_E_MEMORY) return pal_fail(c->err, st, "%s", why.text);
        c->mamba2 = !st && !c->family; /* what neither can say is written as ours */
        if (st && json_object_get(c->model->source.config, "origin"))
            pal_warn("%s is for palimpsa alone, llama.cpp does not read it: %s", c->target, why.text);
    } else if (c->options->to == PAL_LAYOUT_HF
                   ? (st = take_family(c, c->err))
                   : c->options->to == PAL_LAYOUT_OFFICIAL && (st = check_plain(c, c->err))) {
        return st;
    }
    set_config(c);
    if ((st = plan_tensors(c)) || (st = find_tokenizer(c))) return st;
    c->report.writing = true;
    return gguf ? write_gguf(c) : write_directory(c);
}

pal_status pal_convert(const char *source, const char *target, const pal_convert_options *options,
                       pal_converted *report, pal_error *err) {
    conversion c = { .target = target, .options = options, .err = err };
    const pal_status st = convert(&c, source);
    if (report) *report = c.report;
    pal_attachment_close(&c.attached);
    pal_free(c.tensors);
    pal_free(c.source);
    pal_free(c.types);
    json_decref(c.pairs);
    pal_source_close(&c.view);
    pal_model_close(c.model);
    return st;
}
