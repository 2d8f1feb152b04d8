/* SPDX-License-Identifier: MIT */
#include "support/models.h"

#include "model/model.h"
#include "support/support.h"

const test_kind test_kinds[] = {
    { "palimpsa-d", "palimpsa-d", "text", NULL, 0 },
    { "palimpsa-d without metaplasticity", "palimpsa-d-wo-meta", "text", NULL, 0 },
    { "hybrid palimpsa-d", "palimpsa-d", "text", NULL, 1 },
    { "palimpsa-m", "palimpsa-m", "text", NULL, 0 },
    { "palimpsa-m without metaplasticity", "palimpsa-m-wo-meta", "text", NULL, 0 },
    { "hybrid palimpsa-m", "palimpsa-m", "text", NULL, 1 },
    { "official mamba2", "mamba2-130m", NULL, NULL, 0 },
    { "gated deltanet", "gated-deltanet", "text", NULL, 0 },
    { "transformer", "transformer", "text", NULL, 0 },
    { "mqar palimpsa-d", "palimpsa-d", "mqar", NULL, 0 },
    { "mqar palimpsa-m", "palimpsa-m", "mqar", NULL, 0 },
    { "mqar gated deltanet", "gated-deltanet", "mqar", NULL, 0 },
    { "mqar transformer", "transformer", "mqar", NULL, 0 },
    { "rule longhorn", "palimpsa-d", "text", "longhorn", 0 },
    { "rule delta", "palimpsa-d", "text", "delta", 0 },
    { "rule gdn", "palimpsa-d", "text", "gdn", 0 },
    { "rule gdn_app", "palimpsa-d", "text", "gdn_app", 0 },
    { "rule mesa", "palimpsa-d", "text", "mesa", 0 },
    { "rule mesa by conjugate gradient", "palimpsa-d", "text", "mesa", 0, 1e-7 },
    { "mqar rule mesa", "palimpsa-d", "mqar", "mesa", 0 },
    { "narrow palimpsa-d with a wide mlp", "palimpsa-d", "text", NULL, 0, .heads = 1, .head_dim = 2, .mlp = 96 },
};
const size_t test_kind_count = PAL_COUNT(test_kinds);

const test_kind *test_kind_named(const char *name) {
    for (size_t i = 0; i < test_kind_count; i++)
        if (strcmp(test_kinds[i].name, name) == 0) return &test_kinds[i];
    fail_msg("no kind '%s'", name);
    return NULL;
}

pal_model_config test_model_config(const test_kind *kind) {
    pal_model_config c;
    pal_error err;
    const bool m = strncmp(kind->preset, "palimpsa-m", 10) == 0, mamba = strncmp(kind->preset, "mamba2", 6) == 0;
    pal_preset_options o = { .task = kind->task,
                             .rule = kind->rule,
                             .mesa_tolerance = kind->mesa_tolerance,
                             .vocab = TEST_VOCAB,
                             .hidden = 20,
                             .layers = kind->hybrid ? 3 : 2,
                             .mlp = kind->mlp ? kind->mlp : 24 };
    if (m || mamba) o.head_dim = 10, o.state_size = 6;
    else o.heads = kind->heads ? kind->heads : 2, o.head_dim = kind->head_dim;
    if (m) o.rank = 3;
    if (pal_model_preset(&c, kind->preset, &o, &err)) fail_msg("%s: %s", kind->name, err.text);
    pal_mixer_spec *x = &c.block[0].mixer[0];
    if (m && !kind->hybrid) x->key_heads = 2; /* groups of heads */
    if (mamba) x->key_heads = x->norm_groups = 2;
    if (x->kind == PAL_MIXER_ATTENTION) x->key_heads = 1;
    if (kind->hybrid) c.listed = c.metaplastic[1] = true;
    return c;
}

pal_model *test_model(const test_kind *kind, pal_model_use use, const pal_context *cx) {
    const pal_model_config c = test_model_config(kind);
    pal_model *model;
    pal_error err;
    if (pal_model_new(&model, &c, 17, use, cx, &err)) fail_msg("%s: %s", kind->name, err.text);
    for (size_t i = 0; i < pal_model_weight_count(model); i++) {
        const pal_weight *w = pal_model_weight(model, i);
        pal_rng rng = pal_rng_at(18, i);
        for (size_t j = 0; j < w->count; j++)
            model->parameters[w->offset + j] += (float)((w->rank == 2 ? 0.25 : 0.1) * pal_rng_normal(&rng));
    }
    return model;
}

runner test_runner(size_t kind, pal_model_use use, pal_work_options options) {
    runner r = { .cx = test_context(2, NULL), .name = test_kinds[kind].name };
    r.model = test_model(&test_kinds[kind], use, r.cx);
    r.rows = (size_t)pal_model_config_of(r.model)->vocab_rows;
    OK(pal_work_new(&r.work, r.model, r.cx, &options, err));
    return r;
}

void test_runner_free(runner *r) {
    pal_work_free(r->work);
    pal_model_close(r->model);
    pal_context_free(r->cx);
}

void test_ids(int32_t *ids, int n, int vocab, uint64_t seed) {
    pal_rng rng = pal_rng_at(seed, 1);
    for (int i = 0; i < n; i++) ids[i] = (int32_t)pal_rng_below(&rng, (uint32_t)vocab);
}

void test_last_logits(const pal_model *model, const pal_context *cx, const int32_t *ids, int n, float *out) {
    pal_work *work;
    const int cu[2] = { 0, n }, last = n - 1;
    const pal_batch batch = { .tokens = n, .sequences = 1, .ids = ids, .cu_seqlens = cu };
    OK(pal_work_new(&work, model, cx, &(pal_work_options){ .tokens = n }, err));
    OK(pal_model_forward(model, work, &batch, &last, 1, out, err));
    pal_work_free(work);
}
