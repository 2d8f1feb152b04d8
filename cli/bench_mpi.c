/* SPDX-License-Identifier: MIT */
/* palimpsa bench mpi: what training on several ranks costs. Whole updates, the same without the exchange of gradients
 * and parameters, and the exchange alone take turns; ranks begin each together, and the slowest one counts. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/context.h"
#include "bench.h"
#include "cli.h"
#include "comm/exchange.h"
#include "format/json.h"
#include "model/work.h"
#include "named_model.h"
#include "ranks.h"
#include "train/optimiser.h"

typedef struct {
    const char *model, *task, *json;
    int tokens, sequences, every, repeats;
    cli_common common;
} bench_options;

/* What takes turns. */
typedef enum { UPDATE, STUBBED, SUM, SHARE, KINDS } kind;
static const char *const kind_names[KINDS] = { "mpi.update", "mpi.update.stubbed", "mpi.sum", "mpi.share" };

typedef struct {
    const bench_options *o;
    const pal_context *cx;
    const pal_comm *comm;
    pal_model *model;
    pal_work *work;
    pal_exchange *exchange;
    pal_optimiser *optimiser;
    int32_t *ids, *targets;
    int *cu;
    double seconds[KINDS][BENCH_REPEATS];
    double latency, bandwidth; /* seconds of a sum of one number; bytes a second, both ways at once */
} side;

static int open_side(side *s) {
    const bench_options *o = s->o;
    const int tokens = o->tokens * o->sequences;
    const pal_optimiser_options adamw = { .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-15, .weight_decay = 0.1, .clip = 1 };
    const pal_work_options work = { .tokens = tokens, .sequences = o->sequences, .training = true };
    const pal_preset_options preset = { .task = o->task };
    pal_error err;
    const int code = cli_open_model(&s->model, o->model, &preset, PAL_FOR_TRAINING, s->cx);
    if (code) return code;
    if (pal_work_new(&s->work, s->model, s->cx, &work, &err) ||
        pal_exchange_new(&s->exchange, s->comm, pal_model_flat(s->model), &err) ||
        pal_optimiser_new(&s->optimiser, s->model, &adamw, s->exchange, &err))
        return cli_fail(&err);
    s->ids = pal_alloc((size_t)tokens, sizeof *s->ids);
    s->targets = pal_alloc((size_t)tokens, sizeof *s->targets);
    s->cu = pal_alloc((size_t)o->sequences + 1, sizeof *s->cu);
    if (!s->ids || !s->targets || !s->cu) return cli_error(CLI_FAILED, "bench: out of memory");
    const int vocab = pal_model_config_of(s->model)->vocab;
    for (int i = 0; i < tokens; i++) {
        s->ids[i] = (int32_t)((unsigned)(i + 7919 * s->comm->rank) * 2654435761u % (unsigned)vocab);
        s->targets[i] = i % o->every ? PAL_IGNORE : s->ids[i];
    }
    for (int n = 0; n <= o->sequences; n++) s->cu[n] = n * o->tokens;
    return CLI_OK;
}

static void close_side(side *s) {
    pal_optimiser_free(s->optimiser);
    pal_exchange_free(s->exchange);
    pal_work_free(s->work);
    pal_model_close(s->model);
    pal_free(s->ids), pal_free(s->targets), pal_free(s->cu);
}

static void send_gradients(void *user, size_t from) { pal_exchange_ready(user, from); }

/* As the trainer does it; without an exchange every rank updates its slices from gradients of its own. */
static pal_status update(side *s, bool exchanges, pal_error *err) {
    const pal_batch batch = { .tokens = s->o->tokens * s->o->sequences,
                              .sequences = s->o->sequences,
                              .ids = s->ids,
                              .cu_seqlens = s->cu,
                              .targets = s->targets };
    float *gradients = pal_model_flat_gradients(s->model);
    pal_loss loss;
    pal_status st;
    memset(gradients, 0, pal_model_flat(s->model) * sizeof *gradients);
    pal_exchange_begin(s->exchange, gradients);
    pal_work_on_learned(s->work, exchanges ? send_gradients : NULL, s->exchange);
    if ((st = pal_model_learn(s->model, s->work, &batch, 1.0f, &loss, NULL, err))) return st;
    double sums[2] = { loss.sum, (double)loss.count };
    if (exchanges && ((st = pal_comm_sum(s->comm, sums, 2, err)) || (st = pal_exchange_sum(s->exchange, err))))
        return st;
    double squares = pal_optimiser_squares(s->optimiser, s->model, s->cx);
    if (exchanges && (st = pal_comm_sum(s->comm, &squares, 1, err))) return st;
    pal_optimiser_apply(s->optimiser, s->model, s->cx, squares, 1 / sums[1], 1e-5);
    return exchanges ? pal_exchange_share(s->exchange, pal_model_flat_parameters(s->model), err) : PAL_OK;
}

static pal_status sum_alone(side *s, pal_error *err) {
    pal_exchange_begin(s->exchange, pal_model_flat_gradients(s->model));
    return pal_exchange_sum(s->exchange, err);
}

/* The time of the slowest rank, known to all. */
static pal_status slowest(const pal_comm *c, double *seconds, pal_error *err) {
    pal_status st = PAL_OK;
    double theirs = *seconds;
    for (int r = 1; r < c->size && !st; r++) {
        st = pal_comm_move(c, r, 0, &theirs, sizeof theirs, err);
        if (pal_comm_is_root(c) && theirs > *seconds) *seconds = theirs;
    }
    return st ? st : pal_comm_broadcast(c, seconds, sizeof *seconds, err);
}

static pal_status measure(side *s, kind k, double *seconds, pal_error *err) {
    pal_status st = pal_comm_meet(s->comm, err);
    const double since = pal_seconds();
    if (st) return st;
    switch (k) {
    case UPDATE: st = update(s, true, err); break;
    case STUBBED: st = update(s, false, err); break;
    case SUM: st = sum_alone(s, err); break;
    case SHARE: st = pal_exchange_share(s->exchange, pal_model_flat_parameters(s->model), err); break;
    case KINDS: break;
    }
    *seconds = pal_seconds() - since;
    return st ? st : slowest(s->comm, seconds, err);
}

/* Latency of a sum over all ranks; bandwidth between ranks 0 and 1. */
static pal_status measure_link(side *s, pal_error *err) {
    enum { SUMS = 200, PIECES = 16, PIECE = 1 << 20 /* floats */ };
    const pal_comm *c = s->comm;
    float *out = pal_alloc(PIECE, sizeof *out), *in = pal_alloc(PIECE, sizeof *in);
    pal_status st = out && in ? pal_comm_meet(c, err) : pal_fail(err, PAL_E_MEMORY, "out of memory for messages");
    double since = pal_seconds(), x = 1;
    for (int i = 0; i < SUMS && !st; i++) st = pal_comm_sum(c, &x, 1, err), x = 1;
    s->latency = (pal_seconds() - since) / SUMS;
    if (!st) st = pal_comm_meet(c, err);
    since = pal_seconds();
    for (int i = 0; i < PIECES && c->rank < 2 && !st; i++) {
        int left = 0;
        if (!(st = pal_comm_receive(c, 1 - c->rank, PAL_COMM_VALUES, in, PIECE * sizeof *in, &left, err)) &&
            !(st = pal_comm_send(c, 1 - c->rank, PAL_COMM_VALUES, out, PIECE * sizeof *out, &left, err)))
            st = pal_comm_wait(c, &left, err);
    }
    s->bandwidth = PIECES * PIECE * sizeof *out / (pal_seconds() - since);
    pal_free(out), pal_free(in);
    return st;
}

static void record(const side *s, json_t *list, const char *name, double seconds) {
    char shape[64];
    const int size = s->comm->size;
    const double bytes = 4.0 * (double)pal_model_flat(s->model) * (size - 1) / size; /* one way: sum, or share */
    snprintf(shape, sizeof shape, "R%d B%d T%d", size, s->o->sequences, s->o->tokens);
    pal_json_append(list, json_pack("{s:s, s:s, s:s, s:i, s:f, s:i, s:s, s:I, s:f, s:f, s:f}", "name", name, "shape",
                                    shape, "variant", pal_cpu_level_name(pal_context_level(s->cx)), "threads",
                                    pal_context_threads(s->cx), "ns", seconds * 1e9, "ranks", size, "model",
                                    s->o->model, "parameters", (json_int_t)pal_model_flat(s->model), "bytes", bytes,
                                    "latency_ns", s->latency * 1e9, "link_gbs", s->bandwidth * 1e-9));
}

static void report(const side *s, json_t *list) {
    double t[KINDS];
    const double tokens = (double)s->o->tokens * s->o->sequences * s->comm->size;
    for (int k = 0; k < KINDS; k++) t[k] = bench_median(s->seconds[k], s->o->repeats);
    printf("%s, %d rank%s of %d thread%s, %d x %d tokens each, medians of %d\n", s->o->model, s->comm->size,
           s->comm->size == 1 ? "" : "s", pal_context_threads(s->cx), pal_context_threads(s->cx) == 1 ? "" : "s",
           s->o->sequences, s->o->tokens, s->o->repeats);
    printf("  update                %10.2f ms  %9.0f tok/s\n", t[UPDATE] * 1e3, tokens / t[UPDATE]);
    printf("  the same, stubbed     %10.2f ms  exposed: %.2f ms, %.1f%% of the update\n", t[STUBBED] * 1e3,
           (t[UPDATE] - t[STUBBED]) * 1e3, 100 * (t[UPDATE] - t[STUBBED]) / t[UPDATE]);
    printf("  moments of AdamW      %10.2f MB a rank, of %.2f\n",
           (double)pal_optimiser_moment_bytes(s->optimiser) * 1e-6, 8e-6 * (double)pal_model_flat(s->model));
    for (int k = 0; k < KINDS; k++) record(s, list, kind_names[k], t[k]);
    if (s->comm->size == 1) return;
    const double alone = t[SUM] + t[SHARE],
                 one_way = 4.0 * (double)pal_model_flat(s->model) * (s->comm->size - 1) / s->comm->size;
    printf("  sum of gradients      %10.2f ms  %9.2f MB a rank, %.2f GB/s\n", t[SUM] * 1e3, one_way * 1e-6,
           one_way / t[SUM] * 1e-9);
    printf("  share of parameters   %10.2f ms  %9.2f MB a rank, %.2f GB/s\n", t[SHARE] * 1e3, one_way * 1e-6,
           one_way / t[SHARE] * 1e-9);
    printf("  hidden by compute     %9.0f%% of both\n", 100 * (1 - (t[UPDATE] - t[STUBBED]) / alone));
    printf("  link: a sum of one number takes %.1f us; %.2f GB/s between ranks 0 and 1, both ways at once\n",
           s->latency * 1e6, s->bandwidth * 1e-9);
}

static int run_bench(side *s) {
    pal_error err;
    json_t *list = json_array();
    int code = open_side(s);
    pal_status st = PAL_OK;
    if (!code && s->comm->size > 1) st = measure_link(s, &err);
    for (int i = -1; i < s->o->repeats && !code && !st; i++) /* one turn to warm up */
        for (int k = 0; k < KINDS && !st; k++) {
            double seconds;
            st = measure(s, (kind)k, &seconds, &err);
            if (i >= 0) s->seconds[k][i] = seconds;
        }
    if (st) code = cli_error(CLI_FAILED, "%s", err.text);
    if (!code) report(s, list);
    if (!code && pal_comm_is_root(s->comm)) code = bench_write_json(list, s->o->json);
    close_side(s);
    json_decref(list);
    return code;
}

int bench_mpi(int argc, char **argv) {
    bench_options o = {
        .model = "palimpsa-d-170m", .task = "text", .tokens = 512, .sequences = 1, .every = 1, .repeats = 3
    };
    const cli_option options[] = {
        { "model", OPT_TEXT, &o.model, "NAME|DIR", "model, as for 'train' (default palimpsa-d-170m)" },
        { "task", OPT_TEXT, &o.task, "NAME", "mqar or text: what a bare name means (default text)" },
        { "tokens", OPT_INT, &o.tokens, "N", "tokens per sequence (default 512)" },
        { "sequences", OPT_INT, &o.sequences, "N", "sequences per rank and update (default 1)" },
        { "every", OPT_INT, &o.every, "N", "every N-th token has a target (default 1)" },
        { "repeats", OPT_INT, &o.repeats, "N", "repetitions of each measurement (default 3)" },
        { "json", OPT_TEXT, &o.json, "FILE", "write the results as JSON" },
        CLI_COMMON_OPTIONS(o.common),
    };
    const cli_usage usage = {
        .synopsis = "bench mpi [options]",
        .about = "Measures training updates on several ranks, and what their exchange costs.\n\n"
                 "On the ranks that mpirun started: whole updates, updates without the exchange of "
                 "gradients and parameters, and the exchange alone. Exposed is what the exchange adds to "
                 "an update.",
        .examples =
            "  mpirun -n 2 palimpsa bench mpi\n"
            "  mpirun -n 2 --mca btl tcp,self palimpsa bench mpi --json tcp.json\n"
            "  mpirun -n 2 palimpsa bench mpi --task mqar --model palimpsa-d --sequences 64 --tokens 128 --every 4\n",
        .options = options,
        .option_count = PAL_COUNT(options),
    };
    int positional;
    int code = cli_parse(&usage, argc, argv, NULL, 0, &positional);
    if (code) return code < 0 ? CLI_OK : code;
    if (o.tokens < 1 || o.tokens > 1 << 20 || o.sequences < 1 || o.sequences > 1 << 16 || o.every < 1 ||
        o.repeats < 1 || o.repeats > BENCH_REPEATS)
        return cli_error(CLI_USAGE, "bench mpi: expected 1 to 2^20 tokens, 1 to 65536 sequences and 1 to %d repeats",
                         BENCH_REPEATS);
    if ((code = bench_check_json(o.json))) return code;
    pal_context *cx;
    pal_error err;
    if (pal_context_new(&cx, o.common.threads, o.common.cpu, &err)) return cli_fail(&err);
    side s = { .o = &o, .cx = cx, .comm = ranks_comm() };
    code = run_bench(&s);
    pal_context_free(cx);
    return code;
}
