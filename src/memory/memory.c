/* SPDX-License-Identifier: MIT */
/* The list of rules and the checked public entry points. */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "memory/rule.h"

static const pal_memory_rule *const rules[] = {
#define X(name) &pal_rule_##name,
    PAL_MEMORY_RULES(X)
#undef X
        NULL
};

enum { MAX_WIDTH = 1 << 16, MAX_HEADS = 1 << 16 };

const pal_memory_rule *pal_memory_at(int index) {
    return index >= 0 && (size_t)index < PAL_COUNT(rules) ? rules[index] : NULL;
}

const pal_memory_rule *pal_memory_find(const char *name) {
    for (size_t i = 0; rules[i] && name; i++)
        if (strcmp(rules[i]->name, name) == 0) return rules[i];
    return NULL;
}

const char *pal_memory_name(const pal_memory_rule *rule) { return rule->name; }
const char *pal_memory_summary(const pal_memory_rule *rule) { return rule->summary; }
unsigned pal_memory_inputs_of(const pal_memory_rule *rule) { return rule->inputs; }
bool pal_memory_has_variance(const pal_memory_rule *rule) { return rule->has_variance; }
bool pal_memory_keeps_tokens(const pal_memory_rule *rule) { return rule->keeps_tokens; }

void pal_memory_head(const pal_memory_rule *rule, const pal_memory_shape *shape, const float *state, float *mean,
                     float *importance) {
    const size_t elements = (size_t)shape->dk * (size_t)shape->dv;
    float *parts[2] = { NULL, NULL };
    parts[rule->mean] = mean;
    if (rule->has_importance) parts[1 - rule->mean] = importance;
    for (size_t i = 0; !rule->has_importance && importance && i < elements; i++) importance[i] = NAN;
    rule->export(shape, &(pal_memory_inputs){ 0 }, parts, state);
}

int pal_memory_importance_part(const pal_memory_rule *rule) { return rule->has_importance ? 1 - rule->mean : -1; }
int pal_memory_mean_part(const pal_memory_rule *rule) { return rule->keeps_tokens ? -1 : rule->mean; }

static bool is_empty(const pal_memory_shape *s) {
    return s->sequences < 1 || s->tokens < 1 || s->heads < 1 || s->key_heads < 1 || s->dk < 1 || s->dv < 1;
}

size_t pal_memory_state_floats(const pal_memory_rule *rule, const pal_memory_shape *shape) {
    return rule->state_floats(shape);
}
size_t pal_memory_saved_floats(const pal_memory_rule *rule, const pal_memory_shape *shape) {
    return is_empty(shape) ? 0 : rule->saved_floats(shape);
}
size_t pal_memory_scratch_bytes(const pal_memory_rule *rule, const pal_context *cx, const pal_memory_shape *shape,
                                pal_memory_pass pass) {
    return is_empty(shape) ? 0 : rule->scratch_bytes(cx, shape, pass);
}

const char *pal_memory_part_name(const pal_memory_rule *rule, int part) {
    return part == 0 || part == 1 ? rule->parts[part] : NULL;
}
size_t pal_memory_part_floats(const pal_memory_rule *rule, const pal_memory_shape *shape, int part) {
    return pal_memory_part_name(rule, part) ? rule->part_floats(shape, part) : 0;
}

void pal_memory_reset(const pal_memory_rule *rule, const pal_memory_shape *shape, const pal_memory_inputs *in,
                      float *state) {
    rule->reset(shape, in, state);
}
void pal_memory_import(const pal_memory_rule *rule, const pal_memory_shape *shape, const pal_memory_inputs *in,
                       const float *const parts[2], float *state) {
    rule->import(shape, in, parts, state);
}
void pal_memory_export(const pal_memory_rule *rule, const pal_memory_shape *shape, const pal_memory_inputs *in,
                       float *const parts[2], const float *state) {
    rule->export(shape, in, parts, state);
}

const pal_memory_input pal_memory_input_list[PAL_MEMORY_INPUTS] = {
#define ROWS(field, width, range) \
    { #field, offsetof(pal_memory_inputs, field), offsetof(pal_memory_gradients, field), false, width, range }
#define PARAMETER(field, width, range) \
    { #field, offsetof(pal_memory_inputs, field), offsetof(pal_memory_gradients, field), true, width, range }
    ROWS(q, PAL_PER_KEY, PAL_ANY),
    ROWS(k, PAL_PER_KEY, PAL_ANY),
    ROWS(v, PAL_PER_VALUE, PAL_ANY),
    ROWS(b, PAL_PER_VALUE, PAL_NOT_NEGATIVE),
    ROWS(beta, PAL_PER_HEAD, PAL_ANY),
    ROWS(dt, PAL_PER_HEAD, PAL_NOT_NEGATIVE),
    ROWS(g, PAL_PER_HEAD, PAL_NOT_POSITIVE),
    PARAMETER(A, PAL_PER_HEAD, PAL_NOT_NEGATIVE),
    PARAMETER(Ip, PAL_PER_HEAD, PAL_POSITIVE),
    PARAMETER(lam, PAL_PER_OWN_KEY, PAL_POSITIVE),
    ROWS(gk, PAL_PER_OWN_KEY, PAL_NOT_POSITIVE),
    ROWS(p, PAL_PER_OWN_KEY, PAL_ANY),
    ROWS(erase, PAL_PER_OWN_KEY, PAL_ANY),
    ROWS(write, PAL_PER_VALUE, PAL_ANY),
    ROWS(gp, PAL_PER_HEAD, PAL_NOT_POSITIVE),
    ROWS(betap, PAL_PER_HEAD, PAL_NOT_NEGATIVE),
    ROWS(noise, PAL_PER_HEAD, PAL_NOT_NEGATIVE),
    ROWS(noisek, PAL_PER_OWN_KEY, PAL_NOT_NEGATIVE),
    ROWS(r, PAL_PER_HEAD, PAL_POSITIVE),
    PARAMETER(keep, PAL_PER_ELEMENT, PAL_POSITIVE),
    PARAMETER(drift, PAL_PER_ELEMENT, PAL_NOT_NEGATIVE),
    ROWS(lag, PAL_PER_HEAD, PAL_ANY),
    ROWS(turn, PAL_PER_PAIR, PAL_ANY),
#undef ROWS
#undef PARAMETER
};

int pal_memory_channels(const pal_memory_rule *rule, const pal_memory_shape *s, unsigned input) {
    if (rule->keeps_tokens)
        return (input == PAL_INPUT_Q ? s->heads : s->key_heads) * (input == PAL_INPUT_V ? s->dv : s->dk);
    switch (pal_memory_input_list[__builtin_ctz(input)].width) {
    case PAL_PER_KEY: return s->key_heads * s->dk;
    case PAL_PER_OWN_KEY: return s->heads * s->dk;
    case PAL_PER_PAIR: return s->heads * ((s->dk + 1) / 2);
    case PAL_PER_VALUE: return s->heads * s->dv;
    case PAL_PER_ELEMENT: return s->heads * s->dv * s->dk;
    default: return s->heads;
    }
}

pal_memory_inputs pal_memory_inputs_at(const pal_memory_rule *rule, const pal_memory_shape *s,
                                       const pal_memory_inputs *in, size_t token, size_t head) {
    pal_memory_inputs at = *in;
    for (int i = 0; i < PAL_MEMORY_INPUTS; i++) {
        if (!(rule->inputs & 1u << i)) continue;
        const bool shared = pal_memory_input_list[i].width == PAL_PER_KEY;
        const size_t width = (size_t)(pal_memory_channels(rule, s, 1u << i) / (shared ? s->key_heads : s->heads)),
                     channel = width * (shared ? pal_memory_key_head(s, head) : head);
        pal_const_view *rows = pal_memory_input_rows(&at, i);
        if (pal_memory_input_list[i].parameter)
            *(const float **)((char *)&at + pal_memory_input_list[i].input) += channel;
        else *rows = pal_const_view_at(*rows, token, channel);
    }
    return at;
}

static pal_status check_shape(const pal_memory_rule *rule, const pal_memory_shape *s, pal_memory_pass pass,
                              pal_error *err) {
    if (is_empty(s))
        return pal_fail(
            err, PAL_E_ARGUMENT,
            "%s: every size must be at least 1; found sequences %d, tokens %d, heads %d, key heads %d, dk %d, dv %d",
            rule->name, s->sequences, s->tokens, s->heads, s->key_heads, s->dk, s->dv);
    if (s->dk > MAX_WIDTH || s->dv > MAX_WIDTH || s->heads > MAX_HEADS ||
        (int64_t)s->heads * (s->dk > s->dv ? s->dk : s->dv) > INT32_MAX)
        return pal_fail(err, PAL_E_ARGUMENT, "%s: heads %d, dk %d, dv %d are more than this library addresses",
                        rule->name, s->heads, s->dk, s->dv);
    if (s->heads % s->key_heads)
        return pal_fail(err, PAL_E_ARGUMENT, "%s: %d key heads do not divide %d heads", rule->name, s->key_heads,
                        s->heads);
    if (pass == PAL_STEP) {
        if (s->tokens != s->sequences)
            return pal_fail(err, PAL_E_ARGUMENT,
                            "%s: a step takes one token a sequence; found %d tokens for %d sequences", rule->name,
                            s->tokens, s->sequences);
        return PAL_OK;
    }
    if (!s->cu_seqlens) return pal_fail(err, PAL_E_ARGUMENT, "%s: cu_seqlens is NULL", rule->name);
    if (s->cu_seqlens[0] != 0)
        return pal_fail(err, PAL_E_ARGUMENT, "%s: cu_seqlens[0] is %d, expected 0", rule->name, s->cu_seqlens[0]);
    for (int n = 0; n < s->sequences; n++)
        if (s->cu_seqlens[n + 1] <= s->cu_seqlens[n])
            return pal_fail(err, PAL_E_ARGUMENT, "%s: cu_seqlens must increase; entry %d is %d after %d", rule->name,
                            n + 1, s->cu_seqlens[n + 1], s->cu_seqlens[n]);
    if (s->cu_seqlens[s->sequences] != s->tokens)
        return pal_fail(err, PAL_E_ARGUMENT, "%s: cu_seqlens ends at %d, expected the number of tokens, %d", rule->name,
                        s->cu_seqlens[s->sequences], s->tokens);
    return PAL_OK;
}

static pal_status check_rows(const pal_memory_rule *rule, const char *name, const float *data, size_t stride,
                             int channels, pal_error *err) {
    if (!data) return pal_fail(err, PAL_E_ARGUMENT, "%s: %s is NULL", rule->name, name);
    if (stride < (size_t)channels)
        return pal_fail(err, PAL_E_ARGUMENT, "%s: rows of %s are %zu apart but hold %d channels", rule->name, name,
                        stride, channels);
    return PAL_OK;
}

static bool allowed(float x, pal_memory_range range) {
    switch (range) {
    case PAL_NOT_NEGATIVE: return isfinite(x) && x >= 0;
    case PAL_NOT_POSITIVE: return isfinite(x) && x <= 0;
    case PAL_POSITIVE: return isfinite(x) && x > 0;
    default: return true;
    }
}
static const char *range_words(pal_memory_range range) {
    return range == PAL_NOT_NEGATIVE ? ">=" : range == PAL_POSITIVE ? ">" : "<=";
}

static pal_status check_token_rows(const pal_memory_rule *rule, const pal_memory_input *input, pal_const_view view,
                                   const pal_memory_shape *s, int channels, pal_error *err) {
    const pal_status st = check_rows(rule, input->name, view.data, view.stride, channels, err);
    if (st || input->range == PAL_ANY) return st;
    const int width = channels / s->heads;
    for (int t = 0; t < s->tokens; t++)
        for (int c = 0; c < channels; c++) {
            const float x = view.data[(size_t)t * view.stride + (size_t)c];
            if (!allowed(x, input->range))
                return pal_fail(err, PAL_E_ARGUMENT, "%s: %s of token %d, head %d is %g; expected a finite number %s 0",
                                rule->name, input->name, t, c / width, (double)x, range_words(input->range));
        }
    return PAL_OK;
}

static pal_status check_parameter(const pal_memory_rule *rule, const pal_memory_input *input, const float *x, int count,
                                  pal_error *err) {
    if (!x) return pal_fail(err, PAL_E_ARGUMENT, "%s: %s is NULL", rule->name, input->name);
    for (int i = 0; i < count; i++)
        if (!allowed(x[i], input->range))
            return pal_fail(err, PAL_E_ARGUMENT, "%s: %s[%d] is %g; expected a finite number %s 0", rule->name,
                            input->name, i, (double)x[i], range_words(input->range));
    return PAL_OK;
}

static pal_status check_inputs(const pal_memory_rule *rule, const pal_memory_run *run, pal_error *err) {
    pal_status st;
    for (int i = 0; i < PAL_MEMORY_INPUTS; i++) {
        if (!(rule->inputs & 1u << i)) continue;
        const pal_memory_input *input = &pal_memory_input_list[i];
        const char *field = (const char *)&run->in + input->input;
        const int channels = pal_memory_channels(rule, &run->shape, 1u << i);
        st = input->parameter
                 ? check_parameter(rule, input, *(const float *const *)field, channels, err)
                 : check_token_rows(rule, input, *(const pal_const_view *)field, &run->shape, channels, err);
        if (st) return st;
    }
    if (!isfinite(run->in.scale)) return pal_fail(err, PAL_E_ARGUMENT, "%s: scale is not finite", rule->name);
    if (!(run->in.mesa_tolerance >= 0))
        return pal_fail(err, PAL_E_ARGUMENT, "%s: mesa_tolerance must be at least 0", rule->name);
    return PAL_OK;
}

static pal_status check_states(const pal_memory_rule *rule, const pal_memory_run *run, pal_memory_pass pass,
                               pal_error *err) {
    const pal_memory_shape *s = &run->shape;
    if (!run->state)
        return pass == PAL_STEP ? pal_fail(err, PAL_E_ARGUMENT, "%s: a step needs states", rule->name) : PAL_OK;
    for (int n = 0; n < s->sequences; n++)
        if (!run->state[n]) return pal_fail(err, PAL_E_ARGUMENT, "%s: state %d is NULL", rule->name, n);
    if (!rule->keeps_tokens) return PAL_OK;
    for (int n = 0; n < s->sequences; n++) {
        if (pal_memory_borrows(run, n))
            return pal_fail(err, PAL_E_UNSUPPORTED, "%s: sequence %d borrows its state, but that has to grow",
                            rule->name, n);
        const int past = run->past && !run->fresh ? run->past[n] : 0;
        const int length = pass == PAL_STEP ? 1 : s->cu_seqlens[n + 1] - s->cu_seqlens[n];
        if (past < 0 || length > s->context - past)
            return pal_fail(err, PAL_E_ARGUMENT, "%s: sequence %d has %d tokens and gets %d more; its state holds %d",
                            rule->name, n, past, length, s->context);
    }
    return PAL_OK;
}

/* Attention's backward serves runs that start with an empty cache. */
static pal_status check_cache_gradients(const pal_memory_rule *rule, const pal_memory_run *run, pal_error *err) {
    for (int n = 0; n < run->shape.sequences && run->past && !pal_memory_starts_fresh(run); n++)
        if (run->past[n])
            return pal_fail(
                err, PAL_E_UNSUPPORTED,
                "%s: backward of a run that starts from an empty cache only; sequence %d had %d tokens in its own",
                rule->name, n, run->past[n]);
    for (int part = 0; part < 2; part++)
        if (run->dfinal[part] || run->grad.initial[part])
            return pal_fail(err, PAL_E_UNSUPPORTED, "%s: gradients of or into the cache (part %s) are not offered",
                            rule->name, rule->parts[part]);
    return PAL_OK;
}

static pal_status check_run(const pal_memory_rule *rule, const pal_context *cx, const pal_memory_run *run,
                            pal_memory_pass pass, pal_error *err) {
    pal_status st;
    if (!rule || !cx || !run) return pal_fail(err, PAL_E_ARGUMENT, "memory: rule, context or run is NULL");
    if ((st = check_shape(rule, &run->shape, pass, err))) return st;
    if ((st = check_inputs(rule, run, err))) return st;
    if ((st = check_states(rule, run, pass, err))) return st;
    const int outputs = run->shape.heads * run->shape.dv;
    if ((st = check_rows(rule, "y", run->y.data, run->y.stride, outputs, err))) return st;
    if (run->y_var.data || run->dy_var.data) {
        if (!rule->has_variance)
            return pal_fail(err, PAL_E_UNSUPPORTED, "%s: this rule has no output variance", rule->name);
        if (run->y_var.data && (st = check_rows(rule, "y_var", run->y_var.data, run->y_var.stride, outputs, err)))
            return st;
    }
    if (!run->scratch && rule->scratch_bytes(cx, &run->shape, pass))
        return pal_fail(err, PAL_E_ARGUMENT, "%s: scratch is NULL", rule->name);
    if ((uintptr_t)run->scratch % 64)
        return pal_fail(err, PAL_E_ARGUMENT, "%s: scratch is not aligned to 64 bytes", rule->name);
    return PAL_OK;
}

pal_status pal_memory_forward(const pal_memory_rule *rule, const pal_context *cx, const pal_memory_run *run,
                              pal_error *err) {
    const pal_status st = check_run(rule, cx, run, PAL_FORWARD, err);
    if (!st) pal_memory_pass_on(rule, cx, run, PAL_FORWARD);
    return st;
}

pal_status pal_memory_step(const pal_memory_rule *rule, const pal_context *cx, const pal_memory_run *run,
                           pal_error *err) {
    const pal_status st = check_run(rule, cx, run, PAL_STEP, err);
    if (!st) pal_memory_pass_on(rule, cx, run, PAL_STEP);
    return st;
}

pal_status pal_memory_backward(const pal_memory_rule *rule, const pal_context *cx, const pal_memory_run *run,
                               pal_error *err) {
    pal_status st = check_run(rule, cx, run, PAL_BACKWARD, err);
    if (st) return st;
    const int outputs = run->shape.heads * run->shape.dv;
    if ((st = check_rows(rule, "dy", run->dy.data, run->dy.stride, outputs, err))) return st;
    if (run->dy_var.data && (st = check_rows(rule, "dy_var", run->dy_var.data, run->dy_var.stride, outputs, err)))
        return st;
    if (!run->saved) return pal_fail(err, PAL_E_ARGUMENT, "%s: backward needs what forward saved", rule->name);
    if (rule->keeps_tokens && (st = check_cache_gradients(rule, run, err))) return st;
    for (int i = 0; i < PAL_MEMORY_INPUTS; i++) {
        const pal_view *view = pal_memory_gradient_rows(&run->grad, i);
        if (pal_memory_input_list[i].parameter || !view->data || !(rule->inputs & 1u << i)) continue;
        if ((st = check_rows(rule, pal_memory_input_list[i].name, view->data, view->stride,
                             pal_memory_channels(rule, &run->shape, 1u << i), err)))
            return st;
    }
    pal_memory_pass_on(rule, cx, run, PAL_BACKWARD);
    return PAL_OK;
}
