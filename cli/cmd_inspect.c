/* SPDX-License-Identifier: MIT */
/* palimpsa inspect: what a model directory holds, what running and training it takes, and how far its layers remember.
 */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "attribution_view.h"
#include "base/context.h"
#include "cli.h"
#include "format/json.h"
#include "infer/session.h"
#include "machine.h"
#include "model/config.h"
#include "model/model.h"
#include "named_model.h"
#include "palimpsa/palimpsa.h"
#include "text_ids.h"
#include "text_model.h"
#include "windows_view.h"

enum { LEAST_TOKENS = 32, MOST_TOKENS = 1 << 18 }; /* of a text that memory windows are measured on */

typedef struct {
    const char *path;
    int row, context;
    bool tensors;
    bool windows, open;
    const char *data, *tokenizer, *plot, *kv_type, *attribution;
    int tokens, top; /* 0: as many as there are, at most 4096 and 8 */
    cli_common common;
} inspect_options;

typedef struct {
    const pal_model *model;
    const pal_model_config *config;
    size_t weights;                  /* bytes as they are stored for inference */
    size_t values[PAL_DTYPES];       /* of them, by type */
    size_t held[PAL_DTYPES];         /* of those in Q8_0, by the type in the file that is only read */
    size_t smaller[PAL_DTYPES];      /* what conversion to a type would make of them */
    size_t trainable;                /* numbers that an optimiser updates */
    size_t state;                    /* bytes of a text: at the context asked for */
    size_t state_fixed, state_token; /* of it whatever the length, and for each token */
    size_t generating;               /* workspace of generate, besides weights and state */
    pal_plan kept, recomputed;       /* workspace of training */
    size_t training;                 /* weights, gradients, two moments, workspace */
    cli_machine machine;
} inspection;

static const pal_dtype small_types[] = { PAL_F16, PAL_Q8_0, PAL_Q4_K };

static const char *const groups[] = { "embedding", "mixer", "importance", "mlp", "norm", "head" };

static size_t group_parameters(const pal_model *model, const char *group) {
    size_t n = 0;
    for (size_t i = 0; i < pal_model_weight_count(model); i++)
        if (strcmp(pal_model_weight(model, i)->group, group) == 0) n += pal_model_weight(model, i)->count;
    return n;
}

static int inspect(inspection *in, const pal_model *model, const pal_context *cx, const inspect_options *o) {
    pal_error err;
    *in = (inspection){ .model = model, .config = pal_model_config_of(model) };
    for (size_t i = 0; i < pal_model_weight_count(model); i++) {
        const pal_weight *w = pal_model_weight(model, i);
        in->weights += pal_weight_bytes(w);
        in->values[w->type] += w->count;
        if (w->stored != w->type) in->held[w->stored] += w->count;
        for (size_t t = 0; t < PAL_COUNT(small_types); t++) {
            pal_weight converted = *w;
            converted.type = pal_weight_type_in(w, small_types[t]);
            in->smaller[small_types[t]] += pal_weight_bytes(&converted);
        }
        if (!w->frozen && !w->unused) in->trainable += w->count;
    }
    in->state = pal_state_bytes(model, o->context);
    in->state_fixed = pal_state_bytes(model, 0);
    in->state_token = (pal_state_bytes(model, 1024) - in->state_fixed) / 1024;
    const pal_engine_options engine = { .context = o->context };
    if (pal_engine_plan(&in->generating, model, cx, engine, &err)) return cli_fail(&err);
    pal_work_options work = { .tokens = o->row, .training = true };
    if (pal_work_plan(&in->kept, model, cx, &work, &err)) return cli_fail(&err);
    work.recompute = true;
    if (pal_work_plan(&in->recomputed, model, cx, &work, &err)) return cli_fail(&err);
    in->training = 4 * sizeof(float) * pal_model_parameters(model);
    return cli_machine_ask(&in->machine, model, cx, in->weights + in->state + in->generating, o->context, small_types,
                           in->smaller, PAL_COUNT(small_types));
}

static void print_bytes(const char *label, size_t bytes, const char *note) {
    static const char *const units[] = { "bytes", "KiB", "MiB", "GiB" };
    double value = (double)bytes;
    int unit = 0;
    for (; value >= 1024 && unit < 3; unit++) value /= 1024;
    printf("  %-26s %8.4g %s%s%s\n", label, value, units[unit], note[0] ? ", " : "", note);
}

/* "layers 0-2, 4": those of which `same` says so of the layer and `as`. */
typedef bool same_layer(const pal_model_config *c, int layer, int as);
static void print_layers(const pal_model_config *c, int as, same_layer *same) {
    int count = 0;
    for (int i = 0; i < c->layers; i++) count += same(c, i, as);
    printf(count == 1 ? "layer" : "layers");
    for (int first = 0, runs = 0; first < c->layers; first++) {
        int last = first;
        if (!same(c, first, as)) continue;
        while (last + 1 < c->layers && same(c, last + 1, as)) last++;
        printf(first == last ? "%s %d" : "%s %d-%d", runs++ ? "," : "", first, last);
        first = last;
    }
}

static bool same_rule(const pal_model_config *c, int layer, int as) {
    return strcmp(pal_model_layer_rule(c, layer), pal_model_layer_rule(c, as)) == 0;
}

static bool same_block(const pal_model_config *c, int layer, int as) { return c->layer_block[layer] == as; }

/* "rules: palimpsa in layers 0-2, 4; attention in layer 3" */
static void print_rules(const pal_model_config *c) {
    printf("rules: ");
    for (int i = 0; i < c->layers; i++) {
        int first = 0;
        while (!same_rule(c, first, i)) first++;
        if (first < i) continue;
        printf("%s%s in ", i ? "; " : "", pal_model_layer_rule(c, i));
        print_layers(c, i, same_rule);
    }
    putchar('\n');
}

static void print_shape(const pal_weight *w) {
    char text[64];
    int at = 0;
    for (int i = 0; i < w->rank; i++)
        at += snprintf(text + at, sizeof text - (size_t)at, "%s%lld", i ? " x " : "", (long long)w->shape[i]);
    printf("%-20s", text);
}

/* "Q8_0 93.1%, F32 6.9%; 93.1% are Q2_K in the file" */
static void type_shares(char *text, size_t size, const inspection *in) {
    size_t at = 0;
    text[0] = 0;
    for (int type = 0; type < PAL_DTYPES; type++) {
        if (!in->values[type] || at >= size) continue;
        const double share = 100.0 * (double)in->values[type] / (double)pal_model_parameters(in->model);
        const int n = snprintf(text + at, size - at, "%s%s %.1f%%", at ? ", " : "", pal_dtype_name((pal_dtype)type),
                               share);
        at += n > 0 ? (size_t)n : 0;
    }
    for (int type = 0; type < PAL_DTYPES; type++) {
        if (!in->held[type] || at >= size) continue;
        const double share = 100.0 * (double)in->held[type] / (double)pal_model_parameters(in->model);
        const int n = snprintf(text + at, size - at, "; %.1f%% are %s in the file", share,
                               pal_dtype_name((pal_dtype)type));
        at += n > 0 ? (size_t)n : 0;
    }
}

static void print_mixer(const inspection *in, const pal_mixer_spec *m, int mlp) {
    printf(", %d heads of %d keys x %d values", m->heads, m->dk, m->dv);
    if (m->key_heads != m->heads)
        printf(", %s %d",
               m->kind == PAL_MIXER_M           ? "key groups"
               : pal_config_kinds[m->kind].attends ? "key-value heads"
                                                : "key heads",
               m->key_heads);
    if (m->conv) printf(", %d taps", m->conv);
    if (mlp) printf(", MLP %d", mlp);
    if (m->rank && group_parameters(in->model, "importance")) printf(", gate rank %d", m->rank);
    if (!pal_config_kinds[m->kind].attends) return;
    if (m->rotary != m->dk) printf(m->rotary ? ", %d rotary channels a head" : ", without positions", m->rotary);
    if (m->qk_norm) printf(", normed queries and keys");
    if (m->out_gate) printf(", gated output");
}

/* "block 1 (layers 3, 7): attention, 4 heads of ..." */
static void print_block(const inspection *in, int block) {
    static const char *const forms[PAL_MLP_FORMS] = { NULL, "gated", "squared ReLU" };
    const pal_model_config *c = in->config;
    const pal_block_spec *b = &c->block[block];
    printf("block %d (", block);
    print_layers(c, block, same_block);
    printf("):");
    for (int k = 0; k < b->mixers; k++) {
        printf("%s %s", k ? "; and" : "", pal_mixer_name(b->mixer[k].kind));
        print_mixer(in, &b->mixer[k], 0);
    }
    if (b->form) printf("%s MLP %d, %s", b->mixers ? ";" : "", b->mlp, forms[b->form]);
    puts("");
}

static void print_human(const inspection *in, const inspect_options *o) {
    const pal_model_config *c = in->config;
    char kind[64], note[256];
    pal_model_describe(c, kind);
    printf("%s: %s\n", o->path, kind);
    printf("sizes: %d layer%s, hidden %d, vocabulary %d", c->layers, c->layers == 1 ? "" : "s", c->hidden, c->vocab);
    if (c->vocab_rows != c->vocab) printf(" (%d rows)", c->vocab_rows);
    if (!c->hybrid) print_mixer(in, &c->block[0].mixer[0], c->block[0].mlp);
    printf("%s\n", c->tied ? ", tied head" : "");
    for (int b = 0; b < c->blocks && c->hybrid; b++)
        if (memchr(c->layer_block, b, (size_t)c->layers)) print_block(in, b);
    print_rules(c);
    printf("parameters: %zu, of them %zu trained\n", pal_model_parameters(in->model), in->trainable);
    for (size_t g = 0; g < PAL_COUNT(groups); g++) {
        const size_t n = group_parameters(in->model, groups[g]);
        if (n)
            printf("  %-26s %12zu  %5.1f%%\n", groups[g], n,
                   100.0 * (double)n / (double)pal_model_parameters(in->model));
    }
    printf("RAM:\n");
    type_shares(note, sizeof note, in);
    print_bytes("weights", in->weights, note);
    for (size_t t = 0; t < PAL_COUNT(small_types); t++) {
        snprintf(note, sizeof note, "  as %s", pal_dtype_name(small_types[t]));
        if (in->smaller[small_types[t]] < in->weights) print_bytes(note, in->smaller[small_types[t]], "");
    }
    if (!in->state_token) snprintf(note, sizeof note, "the same for any length");
    else
        snprintf(note, sizeof note,
                 "at %d tokens (--max-context): %zu bytes whatever the length, and %zu a token (%s)", o->context,
                 in->state_fixed, in->state_token, pal_dtype_name(pal_model_kept_as(in->model)));
    print_bytes("state per sequence", in->state, note);
    print_bytes("generating", in->generating, "workspace besides weights and state");
    snprintf(note, sizeof note, "one row of %d tokens: weights, gradients, two moments, activations", o->row);
    print_bytes("training", in->training + in->kept.total, note);
    print_bytes("  with recomputed layers", in->training + in->recomputed.total, "a third more time for the blocks");
    if (in->model->source.ignored) {
        snprintf(note, sizeof note, "%zu tensors outside the text model, for pictures or for drafts",
                 in->model->source.ignored);
        print_bytes("ignored", in->model->source.ignored_bytes, note);
    }
    cli_machine_print(&in->machine);
    if (!o->tensors) return;
    printf("tensors:\n");
    for (size_t i = 0; i < pal_model_weight_count(in->model); i++) {
        const pal_weight *w = pal_model_weight(in->model, i);
        printf("  %-48s ", w->name);
        print_shape(w);
        printf("%-5s %s%s%s\n", pal_dtype_name(w->type), w->group, w->frozen ? ", frozen" : "",
               w->unused ? ", unused" : "");
    }
}

static json_t *plan_json(const pal_plan *p, size_t rest) {
    return json_pack("{s:I, s:I, s:I, s:I, s:I}", "activations", (json_int_t)p->activations, "transient",
                     (json_int_t)p->transient, "head", (json_int_t)p->head, "scratch", (json_int_t)p->scratch,
                     "total_with_weights_and_moments", (json_int_t)p->total + (json_int_t)rest);
}

static json_t *mixer_json(const pal_mixer_spec *m, int mlp) {
    return json_pack("{s:i, s:i, s:i, s:i, s:i, s:i, s:i}", "heads", m->heads, "key_heads", m->key_heads, "dk", m->dk,
                     "dv", m->dv, "rank", m->rank, "conv", m->conv, "mlp", mlp);
}

/* A model of several kinds of blocks: each kind, and which one each layer is. */
static void add_blocks(json_t *to, const pal_model_config *c) {
    json_t *blocks = json_array(), *layers = json_array();
    for (int b = 0; b < c->blocks; b++) {
        const pal_block_spec *spec = &c->block[b];
        json_t *mixers = json_array();
        for (int k = 0; k < spec->mixers; k++) {
            json_t *one = mixer_json(&spec->mixer[k], 0);
            json_object_del(one, "mlp");
            pal_json_set(one, "kind", json_string(pal_mixer_name(spec->mixer[k].kind)));
            pal_json_append(mixers, one);
        }
        pal_json_append(blocks, json_pack("{s:o, s:i}", "mixers", mixers, "mlp", spec->mlp));
    }
    for (int i = 0; i < c->layers; i++) pal_json_append(layers, json_integer(c->layer_block[i]));
    pal_json_set(to, "blocks", blocks);
    pal_json_set(to, "layer_blocks", layers);
}

static int print_json(const inspection *in, const inspect_options *o) {
    const pal_model_config *c = in->config;
    char kind[64];
    pal_model_describe(c, kind);
    json_t *rules = json_array(), *by_group = json_object();
    for (int i = 0; i < c->layers; i++) pal_json_append(rules, json_string(pal_model_layer_rule(c, i)));
    for (size_t g = 0; g < PAL_COUNT(groups); g++)
        pal_json_set(by_group, groups[g], json_integer((json_int_t)group_parameters(in->model, groups[g])));
    json_t *root = json_pack("{s:o, s:s, s:i, s:i, s:i, s:i, s:b, s:b}", "path", pal_json_text(o->path), "kind", kind,
                             "layers", c->layers, "hidden", c->hidden, "vocab", c->vocab, "vocab_rows", c->vocab_rows,
                             "tied", c->tied, "mqar", c->mqar);
    if (c->hybrid) add_blocks(root, c);
    else pal_json_update(root, mixer_json(&c->block[0].mixer[0], c->block[0].mlp));
    pal_json_set(root, "rules", rules);
    pal_json_set(root, "parameters", json_integer((json_int_t)pal_model_parameters(in->model)));
    pal_json_set(root, "trained", json_integer((json_int_t)in->trainable));
    pal_json_set(root, "parameters_by_group", by_group);
    json_t *types = json_object();
    for (int type = 0; type < PAL_DTYPES; type++)
        if (in->values[type])
            pal_json_set(types, pal_dtype_name((pal_dtype)type), json_integer((json_int_t)in->values[type]));
    pal_json_set(root, "parameters_by_type", types);
    json_t *held = json_object();
    for (int type = 0; type < PAL_DTYPES; type++)
        if (in->held[type])
            pal_json_set(held, pal_dtype_name((pal_dtype)type), json_integer((json_int_t)in->held[type]));
    pal_json_set(root, "held_as_q8_0", held);
    pal_json_set(root, "weight_bytes", json_integer((json_int_t)in->weights));
    json_t *smaller = json_object();
    for (size_t t = 0; t < PAL_COUNT(small_types); t++)
        pal_json_set(smaller, pal_dtype_name(small_types[t]), json_integer((json_int_t)in->smaller[small_types[t]]));
    pal_json_set(root, "weight_bytes_as", smaller);
    pal_json_set(root, "generating_bytes", json_integer((json_int_t)in->generating));
    pal_json_set(root, "state_bytes", json_integer((json_int_t)in->state));
    pal_json_set(root, "state_grows", json_boolean(in->state_token));
    pal_json_set(root, "state_fixed_bytes", json_integer((json_int_t)in->state_fixed));
    pal_json_set(root, "state_bytes_per_token", json_integer((json_int_t)in->state_token));
    pal_json_set(root, "page_tokens", json_integer(in->state_token ? PAL_PAGE_TOKENS : 0));
    pal_json_set(root, "kv_type", json_string(pal_dtype_name(pal_model_kept_as(in->model))));
    pal_json_set(root, "max_context", json_integer(o->context));
    pal_json_set(root, "row", json_integer(o->row));
    pal_json_set(root, "training_bytes", plan_json(&in->kept, in->training));
    pal_json_set(root, "training_bytes_recomputed", plan_json(&in->recomputed, in->training));
    pal_json_set(root, "ignored_tensors", json_integer((json_int_t)in->model->source.ignored));
    pal_json_set(root, "ignored_bytes", json_integer((json_int_t)in->model->source.ignored_bytes));
    pal_json_set(root, "machine", cli_machine_json(&in->machine));
    if (o->tensors) {
        json_t *list = json_array();
        for (size_t i = 0; i < pal_model_weight_count(in->model); i++) {
            const pal_weight *w = pal_model_weight(in->model, i);
            json_t *shape = json_array();
            for (int d = 0; d < w->rank; d++) pal_json_append(shape, json_integer((json_int_t)w->shape[d]));
            pal_json_append(list, json_pack("{s:s, s:o, s:s, s:s, s:i, s:b, s:b, s:b, s:b}", "name", w->name, "shape",
                                            shape, "type", pal_dtype_name(w->type), "group", w->group, "layer",
                                            w->layer, "frozen", w->frozen, "unused", w->unused, "decay", w->decay,
                                            "quantisable", w->quantisable));
        }
        pal_json_set(root, "tensors", list);
    }
    return cli_print_json(root, JSON_INDENT(2));
}

static int show_windows(const pal_model *model, const pal_context *cx, const inspect_options *o) {
    const pal_model_config *c = pal_model_config_of(model);
    bool chosen[PAL_MAX_LAYERS] = { false };
    char kind[64], title[128];
    cli_text_ids text;
    pal_windows w;
    pal_error err;
    const int top = o->top ? o->top : c->layers < 8 ? c->layers : 8;
    if (top > c->layers) return cli_error(CLI_USAGE, "--top %d: the model has %d layers", top, c->layers);
    int code = cli_text_ids_read(&text, o->data, o->tokenizer, model, o->tokens ? o->tokens : LEAST_TOKENS,
                                 o->tokens ? o->tokens : 4096);
    if (code) return code;
    const pal_status st = pal_windows_measure(&w, model, cx, text.ids, text.count, NULL, NULL, &err);
    cli_text_ids_free(&text);
    if (st) return cli_fail(&err);
    for (int r = 0; r < top; r++) chosen[w.order[r]] = !isnan(w.median[w.order[r]]);
    pal_model_describe(c, kind);
    if (o->common.json) {
        json_t *root = json_pack("{s:o, s:s}", "path", pal_json_text(o->path), "kind", kind);
        windows_json(&w, c, chosen, root);
        code = cli_print_json(root, JSON_INDENT(2));
    } else {
        printf("%s: %s\n", o->path, kind);
        windows_print(&w, c, chosen);
    }
    if (!code && o->plot) {
        snprintf(title, sizeof title, "Memory windows of %s, %d layers, %d tokens", kind, c->layers, w.tokens);
        code = windows_draw(&w, chosen, title, o->plot);
        if (!code && !o->common.json) printf("wrote %s\n", o->plot);
    }
    pal_windows_free(&w);
    return code;
}

/* What --windows needs, and what needs --windows. */
static int check_windows(const inspect_options *o) {
    if (!o->windows) {
        if (o->data || (o->tokenizer && !o->attribution) || o->plot || o->tokens || o->top)
            return cli_error(CLI_USAGE, "inspect: --data, --tokenizer, --tokens, --top and --plot go with --windows");
        return CLI_OK;
    }
    if (o->attribution) return cli_error(CLI_USAGE, "inspect: --attribution and --windows are two questions");
    if (!o->data) return cli_error(CLI_USAGE, "inspect: --windows needs --data TEXT to measure them on");
    if (o->tokens && (o->tokens < LEAST_TOKENS || o->tokens > MOST_TOKENS))
        return cli_error(CLI_USAGE, "--tokens expects %d to %d, found %d", LEAST_TOKENS, MOST_TOKENS, o->tokens);
    if (o->top < 0) return cli_error(CLI_USAGE, "--top expects a number of layers, found %d", o->top);
    return o->plot ? windows_check_path(o->plot) : CLI_OK;
}

/* Of a name there are only sizes. */
static int open_model(pal_model **model, const inspect_options *o, const pal_context *cx) {
    pal_model_config config;
    pal_error err;
    *model = NULL;
    if (pal_names_files(o->path))
        return pal_model_open(model, o->path, PAL_FOR_INFERENCE, cx, &err) ? cli_fail(&err) : CLI_OK;
    if (pal_named_preset(&config, o->path, &(pal_preset_options){ 0 }, &err)) return cli_fail(&err);
    if (o->windows)
        return cli_error(CLI_USAGE, "%s: --windows reads with a model's weights, and a name has none", o->path);
    return pal_model_new_unloaded(model, &config, PAL_FOR_INFERENCE, &err) ? cli_fail(&err) : CLI_OK;
}

/* The server, with what it needs to know of our options. */
static int open_page(const inspect_options *o) {
    char threads[16], context[16];
    char *argv[16] = { "serve", (char *)o->path, "--port", "0", "--max-context", context };
    int argc = 6;
    if (o->windows || o->attribution || o->data || o->plot || o->tokens || o->top || o->tensors || o->common.json)
        return cli_error(CLI_USAGE, "inspect: --open goes with --tokenizer, --max-context, --threads and --cpu alone");
    snprintf(context, sizeof context, "%d", o->context);
    if (o->tokenizer) argv[argc++] = "--tokenizer", argv[argc++] = (char *)o->tokenizer;
    if (o->common.threads) {
        snprintf(threads, sizeof threads, "%d", o->common.threads);
        argv[argc++] = "--threads", argv[argc++] = threads;
    }
    if (o->common.cpu) argv[argc++] = "--cpu", argv[argc++] = (char *)o->common.cpu;
    return cmd_serve(argc, argv);
}

int cmd_inspect(int argc, char **argv) {
    inspect_options o = { .row = 1024, .context = 4096 };
    const cli_option options[] = {
        { "tensors", OPT_FLAG, &o.tensors, NULL, "list every tensor" },
        { "row", OPT_INT, &o.row, "N", "tokens of a training row, for the estimate (default 1024)" },
        TEXT_MODEL_KV_OPTION(o.kv_type),
        { "max-context", OPT_INT, &o.context, "N", "context of attention layers, in tokens (default 4096)" },
        { "windows", OPT_FLAG, &o.windows, NULL, "measure the memory window of each layer on a text" },
        { "data", OPT_TEXT, &o.data, "TEXT", "with --windows: text file" },
        { "tokenizer", OPT_TEXT, &o.tokenizer, "X",
          "with --windows or --attribution: tokenizer file, directory or 'bytes' (default: the model's own)" },
        { "tokens", OPT_INT, &o.tokens, "N",
          "with --windows: read exactly N tokens of the text (default: at most 4096)" },
        { "top", OPT_INT, &o.top, "K", "with --windows: mark the K layers that remember longest (default 8)" },
        { "plot", OPT_TEXT, &o.plot, "FILE", "with --windows: draw the windows by position into FILE.svg or .png" },
        { "attribution", OPT_TEXT, &o.attribution, "TEXT",
          "show which tokens of TEXT wrote what its last token reads, in every layer and head" },
        { "open", OPT_FLAG, &o.open, NULL,
          "serve a page that shows the model's memory, on a free port of this machine" },
        { "json", OPT_FLAG, &o.common.json, NULL, "print JSON" },
        CLI_COMMON_OPTIONS(o.common),
    };
    const cli_usage usage = {
        .synopsis = "inspect MODEL|NAME [options]",
        .about = "Shows what a model is and what it needs.\n\n"
                 "Prints kind, sizes, the memory rule of each layer and parameters by group; and bytes of "
                 "weights (as stored, and as 'palimpsa convert --dtype' would store them), of a sequence's "
                 "state, of generating and of training; and whether it runs here: RAM that is needed and free, "
                 "and for models larger than 64 MiB the speed that follows from reading RAM and multiplying "
                 "matrices, both measured for a moment. For a run directory it takes the newest checkpoint, for a "
                 "NAME what 'train --model NAME' would make.\n\n"
                 "--windows reads a text and ranks the layers by their memory window N_t = 1/(1-exp(-A "
                 "dt)) in tokens, the median over heads, then positions. Metaplasticity does most where "
                 "windows are long ('palimpsa convert --metaplastic').\n\n"
                 "--attribution reads TEXT and divides what every head reads at its last token among the tokens "
                 "that wrote it: exactly, since a memory is linear in its values. Shares add up to 100%; one that "
                 "works against the others is negative.",
        .examples =

            "  palimpsa inspect models/recall --open\n  palimpsa inspect mamba2-2.7b\n  palimpsa "
            "inspect my-model --tensors\n  palimpsa inspect my-model --row 4096 --json\n  palimpsa "
            "inspect my-model --windows --data text.txt --plot windows.svg\n"
            "  palimpsa inspect models/recall --attribution '12 130 7 201 12'\n",
        .options = options,
        .option_count = PAL_COUNT(options)
    };
    int count;
    const int parsed = cli_parse(&usage, argc, argv, &o.path, 1, &count);
    if (parsed) return parsed < 0 ? CLI_OK : parsed;
    if (count != 1) return cli_error(CLI_USAGE, "inspect: expected a model; see 'palimpsa inspect --help'");
    if (o.context < 1 || o.context > 1 << 24)
        return cli_error(CLI_USAGE, "--max-context expects 1 to %d, found %d", 1 << 24, o.context);
    if (o.open) return open_page(&o);
    const int wrong = check_windows(&o);
    if (wrong) return wrong;
    pal_context *cx;
    pal_model *model;
    pal_error err;
    inspection in;
    if (pal_context_new(&cx, o.common.threads, o.common.cpu, &err)) return cli_fail(&err);
    if (o.attribution) {
        const int shown = attribution_show(o.path, o.tokenizer, o.attribution, cx, o.common.json);
        pal_context_free(cx);
        return shown;
    }
    int code = open_model(&model, &o, cx);
    if (!code) code = text_model_keep_as(model, o.kv_type);
    if (!code && o.windows) code = show_windows(model, cx, &o);
    else if (!code) code = inspect(&in, model, cx, &o);
    if (!code && !o.windows) {
        if (o.common.json) code = print_json(&in, &o);
        else print_human(&in, &o);
    }
    pal_model_close(model);
    pal_context_free(cx);
    return code;
}
