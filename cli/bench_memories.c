/* SPDX-License-Identifier: MIT */
/* What memories hold, without training: random pairs of a key and a value are written into the memory of every rule,
 * all of the same size, and read back. docs/explanation/sixteen-memories.md explains what comes out. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/context.h"
#include "base/random.h"
#include "bench.h"
#include "cli.h"
#include "memory/rule.h"

enum { VALUES = 32, MOST_PAIRS = 4096, SPARSE_CHANNELS = 4 };

typedef struct {
    cli_common common;
    const char *rule, *csv;
    int pairs, stream, bytes, heads;
} memories_options;

typedef enum { DENSE, SPARSE, KEY_KINDS } key_kind;
static const char *const key_names[] = { "dense", "sparse" };

/* One rule with room for the largest experiment. A head of the memory is one repetition. */
typedef struct {
    const pal_memory_rule *rule;
    const pal_context *cx;
    int dk, heads, rows;  /* rows: tokens that inputs have room for */
    float *keys, *values; /* what is written: (rows, heads, dk), (rows, heads, VALUES) */
    float *input[PAL_MEMORY_INPUTS];
    float *y, *variance, *state, *scratch;
    float **states;
    bool *borrowed;
    int *cu;
    size_t scratch_bytes;
} subject;

/* What was read back of some pairs. */
typedef struct {
    double recalled;    /* share whose own value is the nearest of all that were asked for */
    double unexplained; /* of the values' squares, after the best factor for all answers */
    double variance;    /* mean squared error over mean predicted variance; NaN: no prediction */
    double doubts_new;  /* chance that a new key has a larger predicted variance than a written one */
} outcome;

static int rule_bytes(const pal_memory_rule *rule, int dk) {
    const pal_memory_shape one = { .sequences = 1, .tokens = 1, .heads = 1, .key_heads = 1, .dk = dk, .dv = VALUES };
    const size_t floats = pal_memory_part_floats(rule, &one, 0) + pal_memory_part_floats(rule, &one, 1);
    return (int)(floats * sizeof(float));
}
/* Attention: as many pairs as fit. */
static int held_pairs(const memories_options *o, const subject *s) {
    return o->bytes / (int)sizeof(float) / (s->dk + VALUES);
}

static int bytes_of(const memories_options *o, const subject *s) {
    return s->rule->keeps_tokens ? held_pairs(o, s) * (s->dk + VALUES) * (int)sizeof(float)
                                 : rule_bytes(s->rule, s->dk);
}

static size_t channels(const subject *s, int input) {
    const pal_memory_shape shape = { .heads = s->heads, .key_heads = s->heads, .dk = s->dk, .dv = VALUES };
    return (size_t)pal_memory_channels(s->rule, &shape, 1u << input);
}

static void subject_free(subject *s) {
    for (int i = 0; i < PAL_MEMORY_INPUTS; i++) pal_free(s->input[i]);
    pal_free(s->keys), pal_free(s->values), pal_free(s->y), pal_free(s->variance), pal_free(s->state);
    pal_free(s->scratch), pal_free(s->states), pal_free(s->borrowed), pal_free(s->cu);
}

static bool subject_make(subject *s, const memories_options *o, const pal_memory_rule *rule, const pal_context *cx) {
    *s = (subject){ .rule = rule, .cx = cx, .dk = 1, .heads = o->heads };
    if (rule->keeps_tokens) s->dk = VALUES;
    while (!rule->keeps_tokens && rule_bytes(rule, s->dk + 1) <= o->bytes) s->dk++;
    const int most = o->stream > o->pairs ? o->stream : o->pairs;
    s->rows = rule->keeps_tokens ? o->pairs * (held_pairs(o, s) + 1) : most > 2 * o->pairs ? most : 2 * o->pairs;
    const size_t rows = (size_t)s->rows, heads = (size_t)s->heads;
    bool ok = true;
    for (int i = 0; i < PAL_MEMORY_INPUTS; i++)
        if (rule->inputs & 1u << i)
            ok &= (s->input[i] = pal_alloc(channels(s, i) * (pal_memory_input_list[i].parameter ? 1 : rows),
                                           sizeof(float))) != NULL;
    ok &= (s->keys = pal_alloc((size_t)(most + o->pairs) * heads * (size_t)s->dk, sizeof(float))) != NULL;
    ok &= (s->values = pal_alloc((size_t)most * heads * VALUES, sizeof(float))) != NULL;
    ok &= (s->y = pal_alloc(rows * heads * VALUES, sizeof(float))) != NULL;
    ok &= (s->variance = pal_alloc(rows * heads * VALUES, sizeof(float))) != NULL;
    ok &= (s->states = pal_alloc(2 * (size_t)o->pairs, sizeof *s->states)) != NULL;
    ok &= (s->borrowed = pal_alloc(2 * (size_t)o->pairs, sizeof *s->borrowed)) != NULL;
    ok &= (s->cu = pal_alloc(2 * (size_t)o->pairs + 1, sizeof *s->cu)) != NULL;
    const pal_memory_shape shape = {
        .sequences = 1, .tokens = 1, .heads = s->heads, .key_heads = s->heads, .dk = s->dk, .dv = VALUES, .context = 1
    };
    ok &= (s->state = pal_alloc(rule->state_floats(&shape), sizeof(float))) != NULL;
    return ok;
}

/* New pairs: values of variance 1, keys of length 1. After the keys that are written come `fresh` new ones. */
static void draw_pairs(subject *s, key_kind kind, int written, int fresh, uint64_t seed) {
    pal_fill_normal(s->cx, s->values, (size_t)written * (size_t)s->heads * VALUES, seed, 1, 1);
    pal_rng rng = pal_rng_at(seed, 2);
    const int nonzero = kind == SPARSE && s->dk > SPARSE_CHANNELS ? SPARSE_CHANNELS : s->dk;
    for (int r = 0; r < (written + fresh) * s->heads; r++) {
        float *key = s->keys + (size_t)r * (size_t)s->dk;
        double square = 0;
        memset(key, 0, (size_t)s->dk * sizeof *key);
        for (int j = 0; j < nonzero; j++) {
            const uint32_t at = nonzero < s->dk ? pal_rng_below(&rng, (uint32_t)s->dk) : (uint32_t)j;
            key[at] = (float)pal_rng_normal(&rng);
        }
        for (int j = 0; j < s->dk; j++) square += (double)key[j] * (double)key[j];
        for (int j = 0; j < s->dk; j++) key[j] = (float)((double)key[j] / sqrt(square));
    }
}

/* An input is constant + of_key key + of_value value, channel by channel. */
typedef struct {
    float constant, of_key, of_value;
} made_of;

/* strength says how strongly a pair is written, keep what is left of the memory after one. */
static made_of input_of(const pal_memory_rule *rule, unsigned input, double strength, double keep) {
    const bool compares = rule->inputs & PAL_INPUT_P;
    const bool gates_value = rule->inputs & PAL_INPUT_DT || (compares && rule->inputs & PAL_INPUT_ERASE);
    const float s = (float)strength;
    switch (input) {
    case PAL_INPUT_Q:
    case PAL_INPUT_K:
    case PAL_INPUT_P: return (made_of){ .of_key = 1 };
    case PAL_INPUT_V: return (made_of){ .of_value = gates_value ? s : 1 };
    case PAL_INPUT_ERASE: return compares ? (made_of){ .of_key = s } : (made_of){ .constant = s };
    case PAL_INPUT_WRITE:
    case PAL_INPUT_B: return (made_of){ .constant = s };
    case PAL_INPUT_BETA: return (made_of){ .constant = rule->inputs & PAL_INPUT_LAM ? 1 : s };
    case PAL_INPUT_DT: return (made_of){ .constant = (float)-log(keep) };
    case PAL_INPUT_G:
    case PAL_INPUT_GK:
    case PAL_INPUT_GP: return (made_of){ .constant = (float)log(keep) };
    case PAL_INPUT_NOISE: /* the prior's variance comes back */
    case PAL_INPUT_NOISEK:
    case PAL_INPUT_DRIFT: return (made_of){ .constant = (float)(1 - keep * keep) };
    case PAL_INPUT_R:
    case PAL_INPUT_LAM: return (made_of){ .constant = 1 / s };
    case PAL_INPUT_LAG: /* pairs have no order */
    case PAL_INPUT_TURN: return (made_of){ .constant = 0 };
    case PAL_INPUT_KEEP: return (made_of){ .constant = (float)keep };
    default: return (made_of){ .constant = 1 }; /* A, Ip, betap */
    }
}

/* The same for a token that only asks: it writes nothing and lets nothing decay. */
static made_of question_of(unsigned input, double strength) {
    if (input == PAL_INPUT_Q) return (made_of){ .of_key = 1 };
    return (made_of){ .constant = input == PAL_INPUT_R ? (float)(1 / strength) : 0 };
}

/* Rows row .. of all inputs: `count` pairs from number `pair` on, which are written or only asked for. */
static void put_rows(const subject *s, int row, int pair, int count, bool asks, double strength, double keep) {
    const size_t heads = (size_t)s->heads, dk = (size_t)s->dk;
    for (int i = 0; i < PAL_MEMORY_INPUTS; i++) {
        if (!s->input[i] || pal_memory_input_list[i].parameter) continue;
        const made_of x = asks ? question_of(1u << i, strength) : input_of(s->rule, 1u << i, strength, keep);
        const size_t all = channels(s, i), each = all / heads;
        for (size_t n = 0; n < (size_t)count * heads; n++) {
            float *to = s->input[i] + (size_t)row * all + n * each;
            const float *key = s->keys + ((size_t)pair * heads + n) * dk;
            const float *value = s->values + ((size_t)pair * heads + n) * VALUES;
            for (size_t c = 0; c < each; c++)
                to[c] = x.constant + (x.of_key != 0 ? x.of_key * key[c] : 0) +
                        (x.of_value != 0 ? x.of_value * value[c] : 0);
        }
    }
}

static bool run(subject *s, int sequences, int tokens, double strength, double keep, bool reads) {
    const bool attends = s->rule->keeps_tokens;
    pal_memory_run run = { .shape = { .sequences = sequences,
                                      .tokens = tokens,
                                      .cu_seqlens = s->cu,
                                      .heads = s->heads,
                                      .key_heads = s->heads,
                                      .dk = s->dk,
                                      .dv = VALUES },
                           .y = { s->y, (size_t)s->heads * VALUES } };
    pal_error err;
    for (int i = 0; i < PAL_MEMORY_INPUTS; i++) {
        if (!s->input[i]) continue;
        const size_t each = channels(s, i);
        if (pal_memory_input_list[i].parameter) {
            const made_of x = input_of(s->rule, 1u << i, strength, reads ? 1 : keep);
            for (size_t c = 0; c < each; c++) s->input[i][c] = x.constant;
            *(const float **)((char *)&run.in + pal_memory_input_list[i].input) = s->input[i];
        } else {
            *pal_memory_input_rows(&run.in, i) = (pal_const_view){ s->input[i], each };
        }
    }
    run.in.scale = attends ? (float)(10 * strength) : 1;
    if (!attends) run.state = s->states;
    if (reads) run.borrowed = s->borrowed;
    else run.fresh = true;
    if (attends) run.borrowed = NULL;
    if (reads && s->rule->has_variance) run.y_var = (pal_view){ s->variance, run.y.stride };
    const size_t bytes = s->rule->scratch_bytes(s->cx, &run.shape, PAL_FORWARD);
    if (bytes > s->scratch_bytes) {
        pal_free(s->scratch);
        s->scratch_bytes = bytes;
        if (!(s->scratch = pal_alloc(bytes, 1))) return false;
    }
    run.scratch = s->scratch;
    if (pal_memory_forward(s->rule, s->cx, &run, &err) == PAL_OK) return true;
    cli_error(CLI_FAILED, "%s", err.text);
    return false;
}

/* Writes pairs 0 .. written-1 in one sequence, and asks for the last `asked` of them and as many new keys: rows 0 ..
 * 2 asked - 1 of y. */
static bool write_and_read(subject *s, int written, int asked, double strength, double keep) {
    const int all = 2 * asked;
    put_rows(s, 0, 0, written, false, strength, keep);
    s->cu[0] = 0, s->cu[1] = written;
    for (int n = 0; n < all; n++) s->states[n] = s->state, s->borrowed[n] = true;
    if (!run(s, 1, written, strength, keep, false)) return false;
    put_rows(s, 0, written - asked, all, true, strength, keep); /* the new keys follow those that were written */
    for (int n = 0; n < all; n++) s->cu[n + 1] = n + 1;
    return run(s, all, all, strength, keep, true);
}

/* Attention keeps the last pairs that fit; every question is a sequence with those before it. */
static bool attend(subject *s, const memories_options *o, int written, int asked, double strength) {
    const int held = held_pairs(o, s) < written ? held_pairs(o, s) : written;
    for (int n = 0; n < asked; n++) {
        put_rows(s, n * (held + 1), written - held, held, false, strength, 1);
        put_rows(s, n * (held + 1) + held, written - asked + n, 1, true, strength, 1);
        s->cu[n + 1] = (n + 1) * (held + 1);
    }
    s->cu[0] = 0;
    if (!run(s, asked, asked * (held + 1), strength, 1, false)) return false;
    const size_t row = (size_t)s->heads * VALUES;
    for (int n = 0; n < asked; n++)
        memmove(s->y + (size_t)n * row, s->y + ((size_t)n * (size_t)(held + 1) + (size_t)held) * row,
                row * sizeof *s->y);
    return true;
}

static double dot(const float *a, const float *b) {
    double sum = 0;
    for (int i = 0; i < VALUES; i++) sum += (double)a[i] * (double)b[i];
    return sum;
}

/* Row n of y asked for pair first + n. */
static outcome judge(const subject *s, int first, int asked) {
    const size_t heads = (size_t)s->heads, row = heads * VALUES;
    double hits = 0, yv = 0, yy = 0, vv = 0, error = 0, predicted = 0, above = 0;
    for (size_t h = 0; h < heads; h++)
        for (int n = 0; n < asked; n++) {
            const float *y = s->y + (size_t)n * row + h * VALUES;
            const float *own = s->values + ((size_t)(first + n) * heads + h) * VALUES;
            const double right = dot(y, own) / sqrt(dot(own, own));
            bool best = true;
            for (int c = 0; c < asked && best; c++) {
                const float *other = s->values + ((size_t)(first + c) * heads + h) * VALUES;
                best = c == n || dot(y, other) / sqrt(dot(other, other)) < right;
            }
            hits += best;
            yv += dot(y, own), yy += dot(y, y), vv += dot(own, own);
            if (!s->rule->has_variance) continue;
            const float *var = s->variance + (size_t)n * row + h * VALUES;
            for (int i = 0; i < VALUES; i++) {
                error += ((double)y[i] - (double)own[i]) * ((double)y[i] - (double)own[i]);
                predicted += (double)var[i];
            }
            for (int c = 0; c < asked; c++) { /* the mean over values is the same number for each here */
                const float other = s->variance[(size_t)(asked + c) * row + h * VALUES];
                above += other > var[0] ? 1 : other < var[0] ? 0 : 0.5;
            }
        }
    const double all = (double)asked * (double)heads;
    return (outcome){ .recalled = hits / all,
                      .unexplained = yy > 0 ? 1 - yv * yv / (yy * vv) : 1,
                      .variance = s->rule->has_variance ? error / predicted : NAN,
                      .doubts_new = s->rule->has_variance ? above / (all * asked) : NAN };
}

static bool measure(subject *s, const memories_options *o, key_kind kind, int written, int asked, double strength,
                    double keep, uint64_t seed, outcome *out) {
    draw_pairs(s, kind, written, asked, seed);
    if (!(s->rule->keeps_tokens ? attend(s, o, written, asked, strength)
                                : write_and_read(s, written, asked, strength, keep)))
        return false;
    *out = judge(s, written - asked, asked);
    return true;
}

/* The strength, and in a stream the forgetting, that explain most of other pairs; then what they give on these. */
static bool best_of(subject *s, const memories_options *o, key_kind kind, int written, int asked, outcome *out) {
    static const double strengths[] = { 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 1, 2, 4, 16 };
    static const double windows[] = { 8, 16, 32, 64, 128, 512 };
    const bool stream = written > asked;
    double best = INFINITY, strength = 1, keep = 1;
    for (size_t i = 0; i < PAL_COUNT(strengths); i++)
        for (size_t w = 0; w < (stream && !s->rule->keeps_tokens ? PAL_COUNT(windows) : 1); w++) {
            const double kept = stream ? exp(-1 / windows[w]) : 1;
            outcome one;
            if (!measure(s, o, kind, written, asked, strengths[i], kept, 21, &one)) return false;
            if (one.unexplained < best) best = one.unexplained, strength = strengths[i], keep = kept;
        }
    return measure(s, o, kind, written, asked, strength, keep, 22, out);
}

/* Most pairs of which nine in ten are recalled, between the counts that were measured. */
static double capacity(const outcome *outcomes, int counts) {
    double most = 0;
    for (int i = 0, n = 4; i < counts; i++, n *= 2) {
        if (outcomes[i].recalled >= 0.9) {
            most = n;
            continue;
        }
        if (!i) break;
        const double above = outcomes[i - 1].recalled - 0.9, below = 0.9 - outcomes[i].recalled;
        most = n / 2.0 * pow(2, above / (above + below));
        break;
    }
    return most;
}

static bool measure_rule(subject *s, const memories_options *o, FILE *csv) {
    enum { MOST_COUNTS = 16 };
    for (key_kind kind = DENSE; kind < KEY_KINDS; kind++)
        for (int stream = 0; stream < 2; stream++) {
            outcome outcomes[MOST_COUNTS];
            int counts = 0;
            for (int n = 4; n <= o->pairs; n *= 2) {
                outcome *one = &outcomes[counts++];
                if (!best_of(s, o, kind, stream ? o->stream : n, n, one)) return false;
                if (csv)
                    fprintf(csv, "%s,%d,%d,%s,%s,%d,%.4f,%.4f,%.4f,%.4f\n", s->rule->name, s->dk, bytes_of(o, s),
                            key_names[kind], stream ? "stream" : "once", n, one->recalled, one->unexplained,
                            one->variance, one->doubts_new);
            }
            printf("%s%8.0f", kind || stream ? "" : " ", capacity(outcomes, counts));
            if (stream) continue;
            const outcome *at = &outcomes[counts < 4 ? counts - 1 : 3]; /* 32 pairs */
            printf("%8.3f", at->unexplained);
            if (s->rule->has_variance) printf("%8.2f%8.2f", at->variance, at->doubts_new);
            else printf("%8s%8s", "", "");
        }
    putchar('\n');
    fflush(stdout);
    return true;
}

static int run_bench(const memories_options *o, const pal_context *cx) {
    FILE *csv = o->csv ? fopen(o->csv, "we") : NULL;
    int code = CLI_OK;
    if (o->csv && !csv) return cli_error(CLI_USAGE, "--csv %s: cannot write there", o->csv);
    if (csv) fprintf(csv, "rule,dk,bytes,keys,stream,n,recalled,unexplained,error_over_variance,tells_new\n");
    printf("memories of at most %d bytes, values of %d numbers, %d repetitions\n"
           "once, stream: pairs of which 9 in 10 are recalled, of n that were written and of the last n of %d\n"
           "at 32 pairs, missing: share of the values that answers do not explain; err/var: squared error over the\n"
           "predicted variance; new: how often the variance is larger for a new key than for a written one\n\n",
           o->bytes, VALUES, o->heads, o->stream);
    printf("%-10s %3s %6s %40s %40s\n", "", "", "", "dense keys", "sparse keys");
    printf("%-10s %3s %6s ", "rule", "dk", "bytes");
    for (int kind = 0; kind < KEY_KINDS; kind++)
        printf("%8s%8s%8s%8s%8s%s", "once", "missing", "err/var", "new", "stream", kind ? "\n" : "");
    for (int r = 0; pal_memory_at(r) && code == CLI_OK; r++) {
        const pal_memory_rule *rule = pal_memory_at(r);
        subject s;
        if (o->rule && strcmp(o->rule, rule->name) != 0) continue;
        if (!subject_make(&s, o, rule, cx)) {
            code = cli_error(CLI_FAILED, "bench memories: out of memory");
        } else {
            printf("%-10s %3d %6d", rule->name, s.dk, bytes_of(o, &s));
            if (!measure_rule(&s, o, csv)) code = CLI_FAILED;
        }
        subject_free(&s);
    }
    if (csv && (ferror(csv) | fclose(csv)) && code == CLI_OK)
        code = cli_error(CLI_FAILED, "--csv %s: cannot write", o->csv);
    return code;
}

int bench_memories(int argc, char **argv) {
    memories_options o = { .pairs = 128, .stream = 512, .bytes = 8192, .heads = 8 };
    const cli_option options[] = {
        { "rule", OPT_TEXT, &o.rule, "NAME", "only this rule" },
        { "bytes", OPT_INT, &o.bytes, "N", "of one memory at most (default 8192); keys are as long as fit" },
        { "pairs", OPT_INT, &o.pairs, "N", "most pairs to read back, from 4 on in powers of two (default 128)" },
        { "stream", OPT_INT, &o.stream, "N", "pairs of the stream whose last ones are read back (default 512)" },
        { "repetitions", OPT_INT, &o.heads, "N", "memories of each kind with other pairs (default 8)" },
        { "csv", OPT_TEXT, &o.csv, "FILE", "write every point of every curve to FILE" },
        CLI_COMMON_OPTIONS(o.common),
    };
    const cli_usage usage = {
        .synopsis = "bench memories [options]",
        .about = "Measures what the memory of every rule holds, without training.\n\n"
                 "Random pairs of a key and a value are written into memories of the same size and read back. How "
                 "strongly pairs are written and how fast the memory forgets are the best of a grid, found on other "
                 "pairs.",
        .examples = "  palimpsa bench memories\n  palimpsa bench memories --rule mesa --bytes 32768 --csv mesa.csv\n",
        .options = options,
        .option_count = PAL_COUNT(options)
    };
    int positional;
    const int parsed = cli_parse(&usage, argc, argv, NULL, 0, &positional);
    if (parsed) return parsed < 0 ? CLI_OK : parsed;
    if (o.rule && !pal_memory_find(o.rule))
        return cli_error(CLI_USAGE, "bench memories: there is no memory rule '%s'; without --rule all are listed",
                         o.rule);
    if (o.pairs < 4 || o.pairs > MOST_PAIRS || o.stream < o.pairs || o.stream > 1 << 16 || o.heads < 1 ||
        o.heads > 1024)
        return cli_error(CLI_USAGE,
                         "bench memories: expected 4 to %d pairs, a stream of at least as many and at most 65536, and "
                         "1 to 1024 repetitions",
                         MOST_PAIRS);
    if (o.bytes < 2048 || o.bytes > 1 << 22)
        return cli_error(CLI_USAGE, "bench memories: expected 2048 to %d bytes, found %d", 1 << 22, o.bytes);
    pal_context *cx;
    pal_error err;
    if (pal_context_new(&cx, o.common.threads, o.common.cpu, &err)) return cli_fail(&err);
    const int code = run_bench(&o, cx);
    pal_context_free(cx);
    return code;
}
