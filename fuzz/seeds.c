/* SPDX-License-Identifier: MIT */
/* Seeds that our own writers make: fuzz_seeds DIR puts them into DIR/TARGET. seeds.py calls this and adds the rest. */
#include <sys/stat.h>

#include "base/alloc.h"
#include "data/shards.h"
#include "input.h"
#include "model/kept.h"
#include "palimpsa/session.h"
#include "support/text.h"

static const char *root;

static FILE *seed(const char *target, const char *name) {
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", root, target);
    mkdir(path, 0777);
    snprintf(path, sizeof path, "%s/%s/%s", root, target, name);
    FILE *file = fopen(path, "wb");
    FUZZ_CHECK(file);
    return file;
}

static void copy(FILE *to, const char *path) {
    FILE *from = fopen(path, "rb");
    FUZZ_CHECK(from);
    for (int c; (c = getc(from)) != EOF;) putc(c, to);
    fclose(from);
}

static void save(const char *target, const char *name, pal_bytes *made) {
    FILE *file = seed(target, name);
    fwrite(made->data, 1, made->size, file);
    fclose(file);
    pal_bytes_free(made);
}

static void tokenizers(void) {
    pal_bytes gguf = { 0 }, unigram = { 0 };
    test_tiny_gguf(&gguf, false);
    save("gguf", "tokenizer", &gguf);
    test_tiny_spm(&unigram, true); /* of SentencePiece's BPE tests/fuzz-regressions has one with all bytes */
    save("tokenizer_model", "unigrambytes", &unigram);
}

/* Of every architecture of ours, as convert writes them. */
static void models(void) {
    static const char *const presets[] = { "palimpsa-d", "palimpsa-m", "gated-deltanet", "transformer" };
    for (size_t i = 0; i < sizeof presets / sizeof presets[0]; i++) {
        pal_model *model = fuzz_model(presets[i], 1, PAL_FOR_INFERENCE);
        const pal_convert_options options = { .to = PAL_LAYOUT_GGUF };
        char from[64], to[64];
        pal_error err;
        snprintf(from, sizeof from, "model/%s", presets[i]);
        snprintf(to, sizeof to, "gguf/%s", presets[i]);
        FUZZ_CHECK(pal_model_save(model, fuzz_path(from), PAL_F32, &err) == PAL_OK);
        FUZZ_CHECK(pal_convert(fuzz_path(from), fuzz_path(to), &options, NULL, &err) == PAL_OK);
        FILE *file = seed("gguf", presets[i]);
        copy(file, fuzz_path(to));
        fclose(file);
        pal_model_close(model);
    }
}

static void states(void) {
    static const char *const presets[] = { "palimpsa-d", "transformer" };
    for (int kind = 0; kind < 2; kind++) {
        pal_model *model = fuzz_model(presets[kind], 2, PAL_FOR_INFERENCE);
        pal_engine *engine;
        pal_session *session;
        pal_error err;
        pal_tokenizer *tok = test_letters();
        const pal_engine_options options = { .context = 8 };
        FUZZ_CHECK(pal_engine_new(&engine, model, tok, fuzz_context(), &options, &err) == PAL_OK);
        FUZZ_CHECK(pal_session_new(&session, engine, &err) == PAL_OK);
        const pal_session_options text = { .max_tokens = 2 };
        FUZZ_CHECK(pal_session_begin(session, (const uint32_t[]){ 1, 2, 3 }, 3, &text, &err) == PAL_OK);
        while (pal_engine_busy(engine)) pal_engine_step(engine);
        FUZZ_CHECK(pal_session_save(session, fuzz_path("state"), &err) == PAL_OK);
        FILE *file = seed("state", presets[kind]);
        putc(kind, file);
        copy(file, fuzz_path("state"));
        fclose(file);
        pal_session_free(session);
        pal_engine_free(engine);
        pal_tokenizer_close(tok);
        pal_model_close(model);
    }
}

static void kept(void) {
    pal_model *model = fuzz_model("transformer", 1, PAL_FOR_INFERENCE);
    pal_state *state;
    pal_error err;
    const uint32_t ids[70] = { 1, 2, 3 };
    const pal_kept_place place = { 1, 0 };
    FUZZ_CHECK(pal_state_new(&state, model, 100, &err) == PAL_OK);
    FUZZ_CHECK(pal_state_make_room(state, 70, &err) == PAL_OK);
    state->position = 70;
    FUZZ_CHECK(pal_kept_save(state, ids, &place, fuzz_path("kept"), &err) == PAL_OK);
    FUZZ_CHECK(pal_kept_save_pages(model, state->pages, 1, fuzz_path("pages"), &err) == PAL_OK);
    for (int pages = 0; pages < 2; pages++) {
        FILE *file = seed("kept", pages ? "pages" : "prompt");
        putc(pages, file);
        copy(file, fuzz_path(pages ? "pages" : "kept"));
        fclose(file);
    }
    pal_state_free(state);
    pal_model_close(model);
}

static void checkpoint(void) {
    pal_model *model = fuzz_model("palimpsa-d", 1, PAL_FOR_TRAINING);
    pal_optimiser *optimiser = fuzz_optimiser(model);
    pal_error err;
    FUZZ_CHECK(pal_optimiser_save(optimiser, model, fuzz_path("optimizer"), &err) == PAL_OK);
    for (int whole = 0; whole < 2; whole++) {
        FILE *file = seed("checkpoint", whole ? "whole" : "record");
        fputs("{\"step\": 1, \"stage\": 0, \"stage_step\": 1, \"tokens\": 64, \"skipped\": 0, \"loss_sum\": 200.5, "
              "\"loss_count\": 64, \"correct\": 3, \"score\": 0.5, \"best_score\": null, \"best_step\": -1, "
              "\"finished\": false, \"solved\": false, \"planned\": 2000000000, \"cpu\": \"ref\"}" FUZZ_MARK,
              file);
        if (whole) copy(file, fuzz_path("optimizer"));
        fclose(file);
    }
    pal_optimiser_free(optimiser);
    pal_model_close(model);
}

static void shards(void) {
    static const uint32_t ids[] = { 104, 101, 108, 108, 111 };
    pal_shard_writer *w;
    pal_shard_sums sums;
    pal_error err;
    pal_tokenizer *tok = test_open("bytes");
    const char *directory = fuzz_path("shards/");
    for (int pairs = 0; pairs < 2; pairs++) {
        FUZZ_CHECK(pal_shard_writer_new(&w, directory, 0, pal_tokenizer_fingerprint(tok), 256, &err) == PAL_OK);
        for (int i = 0; i < 4; i++) {
            if (pairs) pal_shard_writer_response(w, 2);
            FUZZ_CHECK(pal_shard_writer_tokens(w, ids, 5, &err) == PAL_OK);
            FUZZ_CHECK(pal_shard_writer_end_document(w, 5, 1, &err) == PAL_OK);
        }
        FUZZ_CHECK(pal_shard_writer_finish(w, &sums, &err) == PAL_OK);
        const pal_shards_summary summary = { .tokenizer = tok, .eos = -1, .count = 1, .shards = &sums, .valid = 0.25 };
        FUZZ_CHECK(pal_shards_finish(directory, &summary, &err) == PAL_OK);
        FILE *file = seed("shards", pairs ? "pairs" : "texts");
        copy(file, fuzz_path("shards/shards.json"));
        fputs(FUZZ_MARK, file);
        copy(file, fuzz_path("shards/00000.shard"));
        fclose(file);
    }
    pal_tokenizer_close(tok);
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: fuzz_seeds DIR\n");
        return 2;
    }
    root = argv[1];
    mkdir(root, 0777);
    tokenizers();
    models();
    states();
    kept();
    checkpoint();
    shards();
    return 0;
}
