/* SPDX-License-Identifier: MIT */
/* A kept prompt or its pages, of a model with attention. Fingerprint and checksums are set right first. What opens can be
 * taken into a state and read further. */
#include <stddef.h>

#include "base/hash.h"
#include "input.h"
#include "model/kept.h"
#include "model/model.h"

enum { CONTEXT = 200, AT_FINGERPRINT = 16, AT_TOKENS = 24, AT_TEXT = 32, AT_BODY = 56, AT_HEAD = 64, HEAD = 72 };
enum { PAGES_COUNT = 24, PAGES_HEAD = 40, PAGES_START = 48 };

static uint64_t get(const unsigned char *p) {
    uint64_t x;
    memcpy(&x, p, sizeof x);
    return x;
}

static void seal_kept(unsigned char *p, size_t size, const pal_model *model) {
    const uint64_t print = pal_model_fingerprint(model);
    uint64_t body = 0, text = 0;
    if (size < HEAD) return;
    const size_t tokens = (size_t)get(p + AT_TOKENS), ids = tokens * 4;
    memcpy(p + AT_FINGERPRINT, &print, sizeof print);
    if (tokens <= CONTEXT && HEAD + ids + tokens % 2 * 4 <= size) {
        const size_t places = tokens / 64 * 16, floats = pal_state_bytes(model, 0);
        const size_t sizes[] = { ids, tokens % 2 * 4, places, floats, tokens % 64 ? model->pages->bytes : 0 };
        const unsigned char *at = p + HEAD;
        for (size_t i = 0; i < 5; i++) {
            if (sizes[i] > size - (size_t)(at - p)) return;
            body = pal_hash(body, at, sizes[i]);
            at += sizes[i];
        }
        for (size_t i = 0; i < tokens; i++) {
            uint32_t id;
            memcpy(&id, p + HEAD + 4 * i, sizeof id);
            text = pal_kept_hash(text, id);
        }
        memcpy(p + AT_TEXT, &text, sizeof text);
        memcpy(p + AT_BODY, &body, sizeof body);
    }
    const uint64_t head = pal_hash(0, p, AT_HEAD);
    memcpy(p + AT_HEAD, &head, sizeof head);
}

static void seal_pages(unsigned char *p, size_t size, const pal_model *model) {
    const uint64_t print = pal_model_fingerprint(model);
    if (size < PAGES_START) return;
    memcpy(p + AT_FINGERPRINT, &print, sizeof print);
    const uint64_t count = get(p + PAGES_COUNT);
    if (count > (size - PAGES_START) / 8) return;
    for (size_t i = 0; i < count; i++) {
        const size_t at = PAGES_START + 8 * (size_t)count + i * model->pages->bytes;
        if (at > size || size - at < model->pages->bytes) break;
        const uint64_t sum = pal_hash(0, p + at, model->pages->bytes);
        memcpy(p + PAGES_START + 8 * i, &sum, sizeof sum);
    }
    const uint64_t head = pal_hash(pal_hash(0, p, PAGES_HEAD), p + PAGES_START, 8 * (size_t)count);
    memcpy(p + PAGES_HEAD, &head, sizeof head);
}

static void read_pages(const pal_model *model, const char *path) {
    pal_kept_pages pages;
    pal_error err;
    if (pal_kept_open_pages(&pages, model, path, &err)) return;
    for (uint64_t i = 0; i <= pages.count && i < 10; i++) {
        pal_page *page;
        if (pal_kept_read_page(&page, &pages, model, i, path, &err) == PAL_OK) {
            FUZZ_CHECK(i < pages.count);
            pal_page_leave(model->pages, page);
        }
    }
    pal_kept_close_pages(&pages);
}

static void read_kept(const pal_model *model, pal_work *work, const char *path) {
    pal_kept kept;
    pal_error err;
    pal_page *full[CONTEXT / 64];
    if (pal_kept_open(&kept, NULL, path, &err) == PAL_OK) {
        uint64_t sum = 0;
        for (size_t i = 0; i < kept.pages; i++) sum += kept.places[i].file;
        FUZZ_CHECK(kept.head.tokens >= 0 && (kept.pages || !sum));
        pal_kept_close(&kept);
    }
    if (pal_kept_open(&kept, model, path, &err)) return;
    if (kept.head.tokens < CONTEXT) {
        pal_state *state;
        FUZZ_CHECK(pal_state_new(&state, model, CONTEXT, &err) == PAL_OK);
        for (size_t i = 0; i < kept.pages; i++) FUZZ_CHECK((full[i] = pal_page_new(model->pages)));
        FUZZ_CHECK(pal_kept_take(state, &kept, full, &err) == PAL_OK);
        FUZZ_CHECK(pal_model_step(model, work, &state, 1, &(int32_t){ 1 }, NULL, &err) == PAL_OK);
        pal_state_free(state);
    }
    pal_kept_close(&kept);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static pal_model *model;
    static pal_work *work;
    pal_error err;
    if (size < 1) return 0;
    if (!model) {
        model = fuzz_model("transformer", 1, PAL_FOR_INFERENCE);
        FUZZ_CHECK(pal_work_new(&work, model, fuzz_context(),
                                &(pal_work_options){ .tokens = 1, .sequences = 1, .context = CONTEXT },
                                &err) == PAL_OK);
    }
    unsigned char *file = malloc(size);
    memcpy(file, data + 1, size - 1);
    if (data[0] & 1) seal_pages(file, size - 1, model);
    else seal_kept(file, size - 1, model);
    const char *path = fuzz_file("kept", file, size - 1);
    free(file);
    if (data[0] & 1) read_pages(model, path);
    else read_kept(model, work, path);
    FUZZ_CHECK(atomic_load(&model->pages->count) == 0);
    return 0;
}
