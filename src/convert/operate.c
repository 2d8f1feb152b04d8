/* SPDX-License-Identifier: MIT */
/* Surgery from one directory to another: choice of layers, writing aside, proof, commit. */
#include <math.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "convert/attach.h"
#include "model/model.h"
#include "model/surgery.h"

typedef struct {
    const char *source, *target;
    const pal_surgery_options *o;
    const pal_context *cx;
    pal_surgery_report *report;
    pal_model *from; /* loaded for windows and proof only */
    pal_surgery surgery;
    pal_model_writer *writer;
    pal_attachment attached; /* its directory is borrowed of `from`, as it was before the proof */
} theatre;

static pal_status check(theatre *t, pal_error *err) {
    const pal_surgery_options *o = t->o;
    pal_surgery *s = &t->surgery;
    *s = (pal_surgery){ .low = PAL_B_SCALE_LOW,
                        .high = PAL_B_SCALE_HIGH,
                        .rank = o->rank,
                        .seed = o->seed,
                        .go_on = o->progress,
                        .user = o->user };
    if (o->rank < 0) return pal_fail(err, PAL_E_ARGUMENT, "surgery: rank %d, expected at least 1", o->rank);
    if (o->exact && o->b_scale)
        return pal_fail(err, PAL_E_ARGUMENT, "surgery: an exact start says where b_scale starts; leave b_scale out");
    if (o->exact) s->low = s->high = PAL_B_SCALE_EXACT;
    if (o->b_scale) s->low = o->b_scale[0], s->high = o->b_scale[1];
    if (!(s->low <= s->high) || !isfinite(s->low) || !isfinite(s->high))
        return pal_fail(err, PAL_E_ARGUMENT,
                        "surgery: b_scale from %g to %g, expected two numbers, the lower one first", s->low, s->high);
    if (o->proof_tokens < 0)
        return pal_fail(err, PAL_E_ARGUMENT, "surgery: a proof on %d tokens, expected 0 (none) or more",
                        o->proof_tokens);
    if (pal_surgery_needs_windows(o->layers) && o->window_tokens < 1)
        return pal_fail(err, PAL_E_ARGUMENT, "surgery: '%s' needs a text to measure memory windows on", o->layers);
    if (!o->dtype) return PAL_OK;
    static const pal_dtype plain[] = { PAL_F32, PAL_BF16, PAL_F16 };
    for (size_t i = 0; i < 3; i++)
        if (strcasecmp(o->dtype, pal_dtype_name(plain[i])) == 0) s->convert = true, s->dtype = plain[i];
    if (!s->convert) return pal_fail(err, PAL_E_ARGUMENT, "surgery: dtype '%s', expected f32, bf16 or f16", o->dtype);
    return PAL_OK;
}

/* The source as it is, or with its weights. */
static pal_status open_source(theatre *t, bool loaded, pal_error *err) {
    pal_model_close(t->from);
    t->from = NULL;
    return loaded ? pal_model_open(&t->from, t->source, PAL_FOR_INFERENCE, t->cx, err)
                  : pal_model_open_unloaded(&t->from, t->source, PAL_FOR_INFERENCE, err);
}

static pal_status choose(theatre *t, pal_error *err) {
    const pal_surgery_options *o = t->o;
    const double start = pal_seconds();
    pal_status st = pal_surgery_choosable(o->layers, &t->from->config, err);
    if (!st && pal_surgery_needs_windows(o->layers)) {
        if (!(st = open_source(t, true, err)))
            st = pal_windows_measure(&t->report->windows, t->from, t->cx, o->ids, o->window_tokens, o->progress,
                                     o->user, err);
    }
    if (!st) st = pal_surgery_choose(t->surgery.layers, o->layers, &t->from->config, &t->report->windows, err);
    memcpy(t->report->layers, t->surgery.layers, sizeof t->surgery.layers);
    t->report->window_seconds = pal_seconds() - start;
    return st;
}

static pal_status prove(theatre *t, pal_error *err) {
    const pal_surgery_options *o = t->o;
    pal_proof *proof = &t->report->proof;
    pal_model *to = NULL;
    const double start = pal_seconds();
    pal_status st = t->report->windows.layers ? PAL_OK : open_source(t, true, err);
    if (st) return st;
    t->report->proving = true;
    st = pal_model_open(&to, pal_model_writer_directory(t->writer), PAL_FOR_INFERENCE, t->cx, err);
    if (!st) st = pal_surgery_prove(proof, &t->surgery, t->from, to, t->cx, o->ids, o->proof_tokens, err);
    pal_model_close(to);
    t->report->proof_seconds = pal_seconds() - start;
    if (!st && o->exact && !(proof->on <= PAL_PROOF_EXACT))
        return pal_fail(err, PAL_E_FORMAT,
                        "an exact start moves logits by %.3g of the largest, more than the %g of rounding; let b_scale "
                        "start between numbers below %g instead",
                        proof->on, PAL_PROOF_EXACT, PAL_B_SCALE_EXACT);
    return st;
}

static pal_status operate(theatre *t, pal_error *err) {
    pal_status st;
    if ((st = check(t, err)) || (st = pal_target_is_free(t->target, true, err)) || (st = open_source(t, false, err)) ||
        (st = choose(t, err)))
        return st;
    t->report->parameters = pal_model_parameters(t->from);
    if ((st = pal_attachment_find(&t->attached, &t->from->source, t->o->tokenizer, (size_t)t->from->config.vocab, err)))
        return st;
    t->report->tokenizer = t->attached.tokenizer != NULL;
    const double start = pal_seconds();
    t->report->writing = true;
    if ((st = pal_surgery_write(&t->writer, t->target, t->from, &t->surgery, t->cx, err)) ||
        (st = pal_attachment_write(&t->attached, pal_model_writer_directory(t->writer), err)))
        return st;
    t->report->write_seconds = pal_seconds() - start;
    if (t->o->proof_tokens && (st = prove(t, err))) return st;
    const double commit = pal_seconds();
    st = pal_model_writer_commit(t->writer, NULL, err);
    t->writer = NULL;
    t->report->write_seconds += pal_seconds() - commit;
    return st;
}

pal_status pal_surgery_operate(const char *source, const char *target, const pal_surgery_options *options,
                               const pal_context *cx, pal_surgery_report *report, pal_error *err) {
    theatre t = { .source = source, .target = target, .o = options, .cx = cx, .report = report };
    *report = (pal_surgery_report){ 0 };
    const pal_status st = operate(&t, err);
    pal_model_writer_drop(t.writer);
    pal_attachment_close(&t.attached);
    pal_model_close(t.from);
    return st;
}

void pal_surgery_report_free(pal_surgery_report *report) { pal_windows_free(&report->windows); }
