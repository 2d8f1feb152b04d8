/* SPDX-License-Identifier: MIT */
#include "texts.h"

#include "input.h"

bool fuzz_text(const pal_tokenizer *tok, const void *text, size_t size, const pal_encode_options *options,
               pal_bytes *decoded) {
    pal_tokenizer_scratch *scratch;
    pal_decoder *decoder;
    pal_ids ids = { 0 };
    pal_bytes stepwise = { 0 };
    pal_error err;
    FUZZ_CHECK(pal_tokenizer_scratch_new(&scratch, tok, &err) == PAL_OK);
    const bool encoded = pal_tokenizer_encode(tok, scratch, text, size, options, &ids, &err) == PAL_OK;
    if (encoded) {
        FUZZ_CHECK(pal_tokenizer_decode(tok, ids.data, ids.count, false, decoded, &err) == PAL_OK);
        FUZZ_CHECK(pal_decoder_new(&decoder, tok, false, &err) == PAL_OK);
        for (size_t i = 0; i < ids.count; i++)
            FUZZ_CHECK(pal_decoder_push(decoder, ids.data[i], &stepwise, &err) == PAL_OK);
        FUZZ_CHECK(pal_decoder_finish(decoder, &stepwise, &err) == PAL_OK);
        pal_decoder_free(decoder);
        FUZZ_CHECK(stepwise.size == decoded->size);
        FUZZ_CHECK(!decoded->size || memcmp(stepwise.data, decoded->data, decoded->size) == 0);
    }
    pal_bytes_free(&stepwise);
    pal_ids_free(&ids);
    pal_tokenizer_scratch_free(scratch);
    return encoded;
}

void fuzz_texts(const pal_tokenizer *tok) {
    static const char *const texts[] = { "", "the cat  sat\n\n on 1234 mats.",
                                         "\xc3\xa9t\xc3\xa9 \xe6\x97\xa5\xe6\x9c\xac e\xcc\x81",
                                         " \t\xff\xfe lower<|endoftext|></s> it's" };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        pal_bytes decoded = { 0 };
        fuzz_text(tok, texts[i], strlen(texts[i]), &(pal_encode_options){ .add_special = i % 2 == 0 }, &decoded);
        pal_bytes_free(&decoded);
    }
}
