/* SPDX-License-Identifier: MIT */
#include "model/pages.h"

#include "base/alloc.h"
#include "base/blocks.h"
#include "model/config.h"

static const pal_mixer_spec *attending(const pal_model_config *c, int layer, bool *beside) {
    const pal_block_spec *block = pal_model_block(c, layer);
    for (int k = 0; k < block->mixers; k++)
        if (pal_config_kinds[block->mixer[k].kind].attends) {
            *beside = k > 0;
            return &block->mixer[k];
        }
    return NULL;
}

/* Where each layer's strips are, with rows of this type. */
static void lay_out(pal_pages *p, pal_dtype type) {
    const pal_block_format *format = pal_block_format_of(type);
    size_t at = 0;
    p->type = type;
    for (int i = 0; i < p->layers; i++) {
        pal_cache *c = &p->of[i];
        c->at = at;
        c->row = c->width / format->values * format->bytes;
        at += c->strips * PAL_PAGE_TOKENS * c->row;
    }
    p->bytes = at;
}

pal_status pal_pages_new(pal_pages **out, const pal_model_config *c, pal_error *err) {
    void *block;
    *out = NULL;
    if (!pal_model_grows(c)) return PAL_OK;
    const pal_status st =
        pal_alloc_named(&block, 1, sizeof(pal_pages) + (size_t)c->layers * sizeof(pal_cache), "a model's layers", err);
    if (st) return st;
    pal_pages *p = block;
    p->layers = c->layers;
    for (int i = 0; i < c->layers; i++) {
        const pal_mixer_spec *m = attending(c, i, &p->of[i].beside);
        if (m) p->of[i].strips = 2 * (size_t)m->key_heads, p->of[i].width = (size_t)m->dk; /* dv is dk */
    }
    lay_out(p, PAL_F32);
    *out = p;
    return PAL_OK;
}

void pal_pages_free(pal_pages *p) { pal_free(p); }

pal_status pal_pages_set_type(pal_pages *p, pal_dtype type, pal_error *err) {
    if (type != PAL_F32 && type != PAL_F16 && type != PAL_Q8_0)
        return pal_fail(err, PAL_E_ARGUMENT, "keys and values in %s: expected F32, F16 or Q8_0", pal_dtype_name(type));
    const size_t values = pal_block_format_of(type)->values;
    for (int i = 0; i < p->layers; i++)
        if (p->of[i].width % values)
            return pal_fail(err, PAL_E_ARGUMENT,
                            "keys and values in %s: its blocks hold %zu numbers, and a head of layer %d has %zu",
                            pal_dtype_name(type), values, i, p->of[i].width);
    if (type == p->type) return PAL_OK;
    if (atomic_load(&p->count))
        return pal_fail(err, PAL_E_ARGUMENT, "keys and values are kept as %s already: states of the model hold some",
                        pal_dtype_name(p->type));
    lay_out(p, type);
    return PAL_OK;
}

pal_page *pal_page_new(pal_pages *p) {
    pal_page *page = pal_alloc(sizeof *page + p->bytes, 1); /* zeroed: rows that are not read yet go to files */
    if (!page) return NULL;
    atomic_init(&page->users, 1);
    atomic_fetch_add(&p->count, 1);
    return page;
}

void pal_page_share(pal_page *page) { atomic_fetch_add_explicit(&page->users, 1, memory_order_relaxed); }

void pal_page_leave(pal_pages *p, pal_page *page) {
    if (atomic_fetch_sub_explicit(&page->users, 1, memory_order_acq_rel) > 1) return;
    atomic_fetch_sub(&p->count, 1);
    pal_free(page);
}
