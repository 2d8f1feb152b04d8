/* SPDX-License-Identifier: MIT */
/* A memory file, of a recurrent model or of one with attention. Its fingerprint and checksum are set right first. A
 * memory that loads can be read on from and saved again. */
#include "base/hash.h"
#include "input.h"
#include "model/model.h"
#include "model/state.h"
#include "palimpsa/session.h"
#include "support/text.h"

enum {
    CONTEXT = 8,
    AT_VERSION = 8,
    AT_PENDING = 12,
    AT_FINGERPRINT = 16,
    AT_POSITION = 24,
    AT_FLOATS = 40,
    AT_CHECKSUM = 48,
    AT_MORE = 56
};

static uint64_t get(const unsigned char *p, size_t bytes) {
    uint64_t x = 0;
    memcpy(&x, p, bytes);
    return x;
}

static void seal(unsigned char *p, size_t size, const pal_model *model) {
    if (size < AT_MORE + 8) return;
    const size_t start = get(p + AT_VERSION, 4) == 1 ? AT_MORE : AT_MORE + 8;
    const uint64_t floats = get(p + AT_FLOATS, 8), more = start == AT_MORE ? 0 : get(p + AT_MORE, 8);
    const uint64_t print = pal_model_fingerprint(model);
    if (floats > (size - start) / sizeof(float) || more > size - start - floats * sizeof(float)) return;
    float *values = malloc(floats * sizeof *values + 1);
    memcpy(values, p + start, floats * sizeof *values);
    uint64_t sum = pal_hash_floats(get(p + AT_POSITION, 8) ^ get(p + AT_PENDING, 4) << 32, values, floats);
    if (more) sum = pal_hash(sum ^ more, p + start + floats * sizeof(float), more);
    free(values);
    memcpy(p + AT_FINGERPRINT, &print, sizeof print);
    memcpy(p + AT_CHECKSUM, &sum, sizeof sum);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const presets[] = { "palimpsa-d", "transformer" };
    static pal_model *models[2];
    static pal_engine *engines[2];
    pal_session *session;
    pal_error err;
    if (size < 1) return 0;
    const int kind = data[0] & 1;
    if (!models[kind]) {
        models[kind] = fuzz_model(presets[kind], 2, PAL_FOR_INFERENCE);
        const pal_engine_options options = { .context = CONTEXT };
        FUZZ_CHECK(pal_engine_new(&engines[kind], models[kind], test_letters(), fuzz_context(), &options, &err) ==
                   PAL_OK);
    }
    unsigned char *file = malloc(size);
    memcpy(file, data + 1, size - 1);
    seal(file, size - 1, models[kind]);
    const char *path = fuzz_file("memory", file, size - 1);
    free(file);
    pal_state_head head;
    const bool headed = pal_state_peek(&head, path, &err) == PAL_OK;
    FUZZ_CHECK(!headed || (head.tokens >= 0 && head.bytes == size - 1));
    FUZZ_CHECK(pal_session_new(&session, engines[kind], &err) == PAL_OK);
    if (pal_session_load(session, path, &err) == PAL_OK) {
        FUZZ_CHECK(headed);
        FUZZ_CHECK(pal_session_save(session, fuzz_path("again"), &err) == PAL_OK);
        const pal_session_options options = { .max_tokens = 1 };
        if (pal_session_begin(session, (const uint32_t[]){ 1, 2 }, 2, &options, &err) == PAL_OK)
            while (pal_engine_busy(engines[kind])) pal_engine_step(engines[kind]);
    }
    pal_session_free(session);
    return 0;
}
