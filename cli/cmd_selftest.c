/* SPDX-License-Identifier: MIT */
/* palimpsa selftest: walks cases, prints each tensor's error next to its tolerance, and counts. */
#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "builtin_cases.h"
#include "cli.h"
#include "format/json.h"
#include "selftest.h"

void selftest_break(selftest_case *c, const char *format, ...) {
    if (c->broken) return; /* the first reason is the one to know */
    va_list args;
    va_start(args, format);
    vsnprintf(c->error.text, sizeof c->error.text, format, args);
    va_end(args);
    c->broken = true;
}

void *selftest_bytes(selftest_case *c, size_t n) {
    if (c->block_count == SELFTEST_BLOCKS) {
        selftest_break(c, "the case needs more than %d blocks of memory", SELFTEST_BLOCKS);
        return NULL;
    }
    void *block = pal_alloc(n ? n : 1, 1);
    if (block) c->blocks[c->block_count++] = block;
    else selftest_break(c, "out of memory for %zu bytes", n);
    return block;
}

float *selftest_floats(selftest_case *c, size_t n) {
    if (n > SIZE_MAX / sizeof(float)) {
        selftest_break(c, "out of memory for %zu numbers", n);
        return NULL;
    }
    return selftest_bytes(c, n * sizeof(float));
}

const float *selftest_input(selftest_case *c, const char *name, size_t count) {
    const pal_tensor *t = pal_safetensors_find(c->file, name);
    if (!t) return NULL;
    if (t->count != count) {
        selftest_break(c, "%s has %zu elements, expected %zu", name, t->count, count);
        return NULL;
    }
    float *x = selftest_floats(c, count);
    if (x && pal_tensor_to_f32(t, x, &c->error)) c->broken = true;
    return x;
}

const float *selftest_required(selftest_case *c, const char *name, size_t count) {
    if (!pal_safetensors_find(c->file, name)) selftest_break(c, "%s is missing", name);
    return selftest_input(c, name, count);
}

const pal_tensor *selftest_shape(selftest_case *c, const char *name, int rank) {
    const pal_tensor *t = pal_safetensors_find(c->file, name);
    if (!t) {
        selftest_break(c, "%s is missing", name);
        return NULL;
    }
    if (t->rank != rank) {
        selftest_break(c, "%s has %d dimensions, expected %d", name, t->rank, rank);
        return NULL;
    }
    return t;
}

static double element(const pal_tensor *t, size_t i) {
    const char *bytes = t->data;
    if (t->dtype == PAL_F64) {
        double x;
        memcpy(&x, bytes + i * sizeof x, sizeof x);
        return x;
    }
    float x;
    memcpy(&x, bytes + i * sizeof x, sizeof x);
    return (double)x;
}

void selftest_check(selftest_case *c, const char *name, const char *how, const float *x, size_t count, double accept) {
    const pal_tensor *t = pal_safetensors_find(c->file, name);
    if (t && t->count != count) return selftest_break(c, "%s has %zu elements, expected %zu", name, t->count, count);
    selftest_check_part(c, name, how, x, 0, count, accept);
}

void selftest_check_part(selftest_case *c, const char *name, const char *how, const float *x, size_t first,
                         size_t count, double accept) {
    const pal_tensor *t = pal_safetensors_find(c->file, name);
    if (!t) return;
    if (first > t->count || t->count - first < count || (t->dtype != PAL_F64 && t->dtype != PAL_F32)) {
        selftest_break(c, "%s has %zu elements of %s, expected %zu of F64 or F32", name, t->count,
                       pal_dtype_name(t->dtype), first + count);
        return;
    }
    double worst = 0, scale = 0;
    for (size_t i = 0; i < count; i++) {
        const double ref = element(t, first + i), diff = fabs((double)x[i] - ref);
        if (!(diff <= worst)) worst = isnan(diff) ? INFINITY : diff; /* a NaN fails */
        if (fabs(ref) > scale) scale = fabs(ref);
    }
    const double found = scale > 0 ? worst / scale : worst;
    const bool good = found <= accept;
    for (size_t i = 0; c->seen && i < pal_safetensors_count(c->file); i++)
        c->seen[i] |= pal_safetensors_at(c->file, i) == t;
    c->checked++;
    c->failed += !good;
    if (c->results) {
        pal_json_append(c->results,
                        json_pack("{s:s, s:s, s:f, s:f, s:b}", "tensor", name, "form", how ? how : "whole", "error",
                                  isfinite(found) ? found : 1e300, "accept", accept, "passed", good));
    } else if (c->verbose || !good) {
        char label[64];
        snprintf(label, sizeof label, "%s%s%s%s", name, how ? " (" : "", how ? how : "", how ? ")" : "");
        printf("    %-32s error %9.2e   accepted %9.2e   %s\n", label, found, accept, good ? "ok" : "FAILED");
    }
}

void selftest_count(selftest_case *c, const char *name, size_t right, size_t all) {
    const bool good = right == all;
    c->checked++;
    c->failed += !good;
    if (c->results)
        pal_json_append(c->results, json_pack("{s:s, s:s, s:I, s:I, s:b}", "tensor", name, "form", "exact", "right",
                                              (json_int_t)right, "expected", (json_int_t)all, "passed", good));
    else if (c->verbose || !good) printf("    %-32s %zu of %zu exact   %s\n", name, right, all, good ? "ok" : "FAILED");
}

/* An expected tensor that no runner computes fails its case: what was recorded for a check is not passed over in
 * silence. */
void selftest_unseen(selftest_case *c) {
    for (size_t i = 0; i < pal_safetensors_count(c->file); i++) {
        const char *name = pal_safetensors_at(c->file, i)->name;
        if (c->seen[i] || (strncmp(name, "out.", 4) != 0 && strncmp(name, "grad.", 5) != 0)) continue;
        c->failed++;
        if (c->results)
            pal_json_append(c->results,
                            json_pack("{s:s, s:s, s:b}", "tensor", name, "form", "not checked", "passed", 0));
        else printf("    %-32s not checked: '%s' does not compute it   FAILED\n", name, c->op);
    }
}

typedef struct {
    const pal_context *cx;
    int passed, failed, skipped;
    bool verbose;
    json_t *cases; /* NULL: print as we go */
} tally;

static void finish_case(tally *t, selftest_case *c, const char *name) {
    const char *verdict;
    if (!c->broken && !c->unsupported && c->seen) selftest_unseen(c);
    if (!c->broken && !c->unsupported && c->checked + c->failed == 0)
        selftest_break(c, "the case has no expected tensor");
    if (c->broken || c->failed) t->failed++, verdict = "failed";
    else if (c->unsupported) t->skipped++, verdict = "skipped";
    else t->passed++, verdict = "passed";
    if (t->cases) {
        pal_json_append(t->cases, json_pack("{s:s, s:s, s:s*, s:o}", "case", name, "result", verdict, "why",
                                            c->broken        ? c->error.text
                                            : c->unsupported ? "not supported"
                                                             : NULL,
                                            "tensors", c->results));
    } else if (c->broken) {
        printf("    %s\n  %s: FAILED\n", c->error.text, name);
    } else if (c->unsupported) {
        printf("  %s: skipped, '%s' is not supported\n", name, c->op);
    } else {
        printf("  %s: %s\n", name, c->failed ? "FAILED" : "passed");
    }
    fflush(stdout);
    for (int i = 0; i < c->block_count; i++) pal_free(c->blocks[i]);
}

/* One file of ops/. status: what opening it gave. */
static void run_op(tally *t, const char *name, pal_safetensors *file, pal_status status, const pal_error *err) {
    selftest_case c = {
        .cx = t->cx, .path = name, .file = file, .verbose = t->verbose, .results = t->cases ? json_array() : NULL
    };
    if (!t->cases && t->verbose) printf("%s\n", name);
    if (status) {
        selftest_break(&c, "%s", err->text);
    } else if (!(c.op = pal_safetensors_metadata(file, "op"))) {
        selftest_break(&c, "%s: the metadata has no 'op'", name);
    } else {
        c.unsupported = pal_context_device(t->cx) != NULL; /* single operations, whose gradients are recorded too */
    }
    if (c.op && !c.broken && !c.unsupported) {
        c.seen = selftest_bytes(&c, pal_safetensors_count(file) * sizeof *c.seen);
        if (c.seen && !selftest_memory(&c) && !selftest_prim(&c)) selftest_break(&c, "%s: unknown op '%s'", name, c.op);
    }
    finish_case(t, &c, name);
    pal_safetensors_close(file);
}

static int has_suffix(const char *name, const char *suffix) {
    const size_t n = strlen(name), s = strlen(suffix);
    return n > s && strcmp(name + n - s, suffix) == 0;
}

static int keep_tensors(const struct dirent *entry) { return has_suffix(entry->d_name, ".safetensors"); }
static int keep_visible(const struct dirent *entry) { return entry->d_name[0] != '.'; }

/* Sorted entries of dir/sub; 0 when there is no such folder, -1 and errno when it cannot be read. */
static int list_folder(const char *dir, const char *sub, int (*keep)(const struct dirent *), struct dirent ***entries) {
    char path[4096];
    if (snprintf(path, sizeof path, "%s/%s", dir, sub) >= (int)sizeof path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    const int n = scandir(path, entries, keep, alphasort);
    return n < 0 && errno == ENOENT ? 0 : n;
}

/* Every directory of dir/sub is a model with its recorded numbers. Adds to *found. */
static int walk_models(tally *t, const char *dir, const char *sub, int *found) {
    struct dirent **entries = NULL;
    struct stat info;
    const int n = list_folder(dir, sub, keep_visible, &entries);
    if (n < 0) return cli_error(CLI_USAGE, "selftest: %s/%s: %s", dir, sub, strerror(errno));
    for (int i = 0; i < n; i++) {
        char path[4096], name[300];
        snprintf(path, sizeof path, "%s/%s/%s", dir, sub, entries[i]->d_name);
        snprintf(name, sizeof name, "%s/%s", sub, entries[i]->d_name);
        free(entries[i]);
        if (stat(path, &info) == 0 && !S_ISDIR(info.st_mode)) continue; /* a note next to the cases */
        ++*found;
        selftest_case c = {
            .cx = t->cx, .path = name, .op = "models", .verbose = t->verbose, .results = t->cases ? json_array() : NULL
        };
        if (!t->cases && t->verbose) printf("%s\n", name);
        selftest_model(&c, path);
        finish_case(t, &c, name);
    }
    free(entries);
    return CLI_OK;
}

static int walk(tally *t, const char *dir) {
    struct dirent **entries = NULL;
    struct stat info;
    int code;
    if (stat(dir, &info) != 0) return cli_error(CLI_USAGE, "selftest: %s: %s", dir, strerror(errno));
    if (!S_ISDIR(info.st_mode)) return cli_error(CLI_USAGE, "selftest: %s: not a directory", dir);
    int found = 0, n = list_folder(dir, "ops", keep_tensors, &entries);
    if (n < 0) return cli_error(CLI_USAGE, "selftest: %s/ops: %s", dir, strerror(errno));
    for (int i = 0; i < n; i++, found++) {
        char path[4096], name[300];
        pal_safetensors *file;
        pal_error err;
        snprintf(path, sizeof path, "%s/ops/%s", dir, entries[i]->d_name);
        snprintf(name, sizeof name, "ops/%s", entries[i]->d_name);
        const pal_status status = pal_safetensors_open(&file, path, &err);
        run_op(t, name, file, status, &err);
        free(entries[i]);
    }
    free(entries);
    if ((code = walk_models(t, dir, "models", &found)) || (code = walk_models(t, dir, "families", &found))) return code;
    if (!found)
        return cli_error(CLI_USAGE, "selftest: %s: no case found; expected %s/ops/*.safetensors or %s/models/*/", dir,
                         dir, dir);
    return CLI_OK;
}

static void walk_builtin(tally *t) {
    for (const builtin_case *b = builtin_cases; b->name; b++) {
        pal_safetensors *file;
        pal_error err;
        const pal_status status = pal_safetensors_parse(&file, b->name, b->bytes, b->size, &err);
        run_op(t, b->name, file, status, &err);
    }
}

int cmd_selftest(int argc, char **argv) {
    cli_common common = { 0 };
    bool verbose = false;
    const cli_option options[] = {
        CLI_COMMON_OPTIONS(common),
        CLI_DEVICE_OPTION(common),
        { "verbose", OPT_FLAG, &verbose, NULL, "print the error of every tensor" },
        { "json", OPT_FLAG, &common.json, NULL, "print the result as JSON" },
    };
    const cli_usage usage = {
        .synopsis = "selftest [DIR] [options]",
        .about =

            "Checks this machine's numbers against recorded float64 ones.\n\n"
            "Compares every file of DIR/ops and every model of DIR/models and DIR/families; without DIR, a small "
            "built-in set. Exit code 1 if a case fails. With --device only models are compared, without gradients.",
        .examples = "  palimpsa selftest                     is this build right on this processor?\n"
                    "  palimpsa selftest tests/golden        all recorded cases\n"
                    "  palimpsa selftest --cpu ref           the plain C code only\n",
        .options = options,
        .option_count = sizeof options / sizeof options[0],
    };
    const char *dir = NULL;
    int given;
    int code = cli_parse(&usage, argc, argv, &dir, 1, &given);
    if (code) return code < 0 ? CLI_OK : code;

    pal_context *cx;
    pal_error err;
    if (pal_context_new_on(&cx, common.threads, common.cpu, common.device, &err)) return cli_fail(&err);
    tally t = { .cx = cx, .verbose = verbose, .cases = common.json ? json_array() : NULL };
    if (!common.json)
        printf("palimpsa %s, cpu %s, %d thread%s\n", pal_version(), pal_cpu_level_name(pal_context_level(cx)),
               pal_context_threads(cx), pal_context_threads(cx) == 1 ? "" : "s");
    if (given) code = walk(&t, dir);
    else walk_builtin(&t);
    if (code == CLI_OK && t.cases) {
        json_t *all = json_pack("{s:s, s:i, s:i, s:i, s:O}", "cpu", pal_cpu_level_name(pal_context_level(cx)), "passed",
                                t.passed, "failed", t.failed, "skipped", t.skipped, "cases", t.cases);
        code = cli_print_json(all, JSON_INDENT(1));
    } else if (code == CLI_OK) {
        printf("%d passed, %d failed", t.passed, t.failed);
        if (t.skipped) printf(", %d skipped", t.skipped);
        putchar('\n');
    }
    json_decref(t.cases);
    pal_context_free(cx);
    return code ? code : t.failed ? CLI_FAILED : CLI_OK;
}
