/* SPDX-License-Identifier: MIT */
/* Many prompts on a few sessions: who is done takes the next prompt. A step costs nearly the same for one writer as for
 * many, so writers wait while any session reads. */
#include <string.h>

#include "base/alloc.h"
#include "infer/session.h"
#include "text/strings.h"

enum { TOGETHER = 16 };

typedef struct {
    pal_session *session;
    pal_bytes text;
    size_t prompt;
    int64_t tokens;
    bool under_way;
    pal_status failed; /* the text could not be kept */
    pal_error error;   /* why, or why the session ended */
} slot;

static void keep_text(void *user, const pal_token *token) {
    slot *s = user;
    s->tokens += token->id >= 0;
    if (token->error) (void)pal_fail(&s->error, PAL_E_ARGUMENT, "%s", token->error);
    if (!s->failed) s->failed = pal_bytes_append(&s->text, token->text.data, token->text.size, &s->error);
}

static pal_status begin(slot *s, const pal_prompt *prompt, size_t index, pal_error *err) {
    const pal_session_options options = { .max_tokens = prompt->max_tokens,
                                          .stop = prompt->stop,
                                          .stop_count = prompt->stop_count,
                                          .ignore_eos = prompt->ignore_eos,
                                          .on_token = keep_text,
                                          .user = s };
    pal_error why;
    s->prompt = index;
    s->text.size = 0;
    s->tokens = 0;
    pal_session_reset(s->session);
    const pal_status st = pal_session_begin(s->session, prompt->ids, prompt->count, &options, &why);
    if (st) return pal_fail(err, st, "prompt %zu: %s", index, why.text);
    s->under_way = true;
    return PAL_OK;
}

static pal_status deliver(slot *s, pal_answer_fn *on_answer, void *user, bool *more, pal_error *err) {
    const pal_slice rest = pal_session_rest(s->session);
    const pal_finish finish = pal_session_finish(s->session);
    s->under_way = false;
    if (!s->failed) s->failed = pal_bytes_append(&s->text, rest.data, rest.size, &s->error);
    if (s->failed) return pal_fail(err, s->failed, "%s", s->error.text);
    const pal_answer answer = { .prompt = s->prompt,
                                .text = { s->text.data, s->text.size },
                                .tokens = s->tokens,
                                .finish = finish,
                                .error = finish == PAL_FINISH_ERROR ? s->error.text : NULL };
    *more = on_answer(user, &answer);
    return PAL_OK;
}

/* Writers continue only when no session reads. */
static void let_readers_first(slot *slots, int n) {
    bool reading = false;
    for (int i = 0; i < n; i++) reading |= slots[i].session->phase == PAL_READING;
    for (int i = 0; i < n; i++) pal_session_pause(slots[i].session, reading && slots[i].session->phase == PAL_WRITING);
}

static pal_status run(pal_engine *e, slot *slots, int n, const pal_prompt *prompts, size_t count,
                      pal_answer_fn *on_answer, void *user, pal_error *err) {
    size_t next = 0, done = 0;
    bool more = true;
    pal_status st = PAL_OK;
    while (!st && more && done < count) {
        for (int i = 0; i < n && next < count && !st; i++)
            if (!slots[i].under_way) {
                st = begin(&slots[i], &prompts[next], next, err);
                next++;
            }
        if (st) break;
        let_readers_first(slots, n);
        pal_engine_step(e);
        for (int i = 0; i < n && !st && more; i++)
            if (slots[i].under_way && !pal_session_busy(slots[i].session)) {
                st = deliver(&slots[i], on_answer, user, &more, err);
                done++;
            }
    }
    return st;
}

pal_status pal_engine_answer(pal_engine *e, const pal_prompt *prompts, size_t count, int together,
                             pal_answer_fn *on_answer, void *user, pal_error *err) {
    if (together < 0) return pal_fail(err, PAL_E_ARGUMENT, "%d prompts at a time: expected at least 1, or 0", together);
    if (!count) return PAL_OK;
    if (!together) together = TOGETHER;
    const int n = count < (size_t)together ? (int)count : together;
    slot *slots;
    pal_status st = pal_alloc_named((void **)&slots, (size_t)n, sizeof *slots, "answers", err);
    if (st) return st;
    for (int i = 0; i < n && !st; i++) st = pal_session_new(&slots[i].session, e, err);
    if (!st) st = run(e, slots, n, prompts, count, on_answer, user, err);
    for (int i = 0; i < n; i++) {
        pal_session_free(slots[i].session);
        pal_bytes_free(&slots[i].text);
    }
    pal_free(slots);
    return st;
}
