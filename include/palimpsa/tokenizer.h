/* SPDX-License-Identifier: MIT */
/* Tokenizers: text to ids and back, id for id as the reference programs do it.
 *
 * What can be opened: a Hugging Face tokenizer.json (byte-level and character BPE), GPT-2's vocab.json with merges.txt,
 * a SentencePiece tokenizer.model (BPE or unigram), the vocabulary inside a GGUF file, a directory that holds one of
 * these, and the built-in "bytes". "chars" and small BPE vocabularies are learned from a text and saved as a
 * tokenizer.json.
 *
 * A tokenizer never changes after it is made: any number of threads may encode with it, each with its own scratch.
 */
#ifndef PALIMPSA_TOKENIZER_H
#define PALIMPSA_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "palimpsa/status.h"
#include "palimpsa/view.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Growing lists. Start from zeroes; calls append; free with the function of the same name. */
typedef struct pal_ids {
    uint32_t *data;
    size_t count, capacity;
} pal_ids;
typedef struct pal_bytes {
    unsigned char *data;
    size_t size, capacity;
} pal_bytes;
PAL_API void pal_ids_free(pal_ids *ids);
PAL_API void pal_bytes_free(pal_bytes *bytes);

typedef struct pal_tokenizer pal_tokenizer;
typedef struct pal_tokenizer_scratch pal_tokenizer_scratch;
typedef struct pal_decoder pal_decoder;

/* One pre-token (the unit that merges work on) may not be longer than this. */
#define PAL_PRETOKEN_MAX ((size_t)16 << 20)

/* spec: "bytes", else a file, else a directory with tokenizer.json, tokenizer.model, vocab.json + merges.txt or
 * tokenizer.gguf (the first of these that is there), else the newest checkpoint of a run directory. A file named
 * "bytes" is reached as "./bytes". */
PAL_API pal_status pal_tokenizer_open(pal_tokenizer **out, const char *spec, pal_error *err);
/* One id for each distinct character of a UTF-8 text, by code point. What was not in the text cannot be encoded later.
 */
PAL_API pal_status pal_tokenizer_learn_chars(pal_tokenizer **out, const pal_slice *texts, size_t count, pal_error *err);
/* Byte-level BPE with GPT-2's pattern: <|endoftext|> is id 0, then the 256 bytes, then merges by falling count (ties:
 * smaller ids first) until there are `size` ids or no pair occurs twice. The same texts give the same tokenizer. */
PAL_API pal_status pal_tokenizer_train_bpe(pal_tokenizer **out, const pal_slice *texts, size_t count, size_t size,
                                           pal_error *err);
PAL_API void pal_tokenizer_close(pal_tokenizer *tok);

/* Writes the tokenizer's file or files into an existing directory, such that opening the directory gives it back, with
 * the same fingerprint. */
PAL_API pal_status pal_tokenizer_save(const pal_tokenizer *tok, const char *directory, pal_error *err);

PAL_API const char *pal_tokenizer_kind(const pal_tokenizer *tok); /* "byte-level BPE", "SentencePiece unigram", ... */
PAL_API size_t pal_tokenizer_size(const pal_tokenizer *tok);      /* ids are 0 .. size-1; some may be unused */
PAL_API int64_t pal_tokenizer_bos(const pal_tokenizer *tok);      /* -1: none */
PAL_API int64_t pal_tokenizer_eos(const pal_tokenizer *tok);
PAL_API bool pal_tokenizer_is_special(const pal_tokenizer *tok,
                                      uint32_t id); /* a control token, such as <|endoftext|> */
/* The bytes an id decodes to in the middle of a text (borrowed), and its name as the file spells it. Empty past the
 * end. */
PAL_API pal_slice pal_tokenizer_text(const pal_tokenizer *tok, uint32_t id);
PAL_API pal_slice pal_tokenizer_name(const pal_tokenizer *tok, uint32_t id);
PAL_API int64_t pal_tokenizer_find(const pal_tokenizer *tok, const char *name); /* id of a name; -1: none */
/* A hash of everything that determines ids (vocabulary, merges, scores, rules, EOS), the same for any spelling of a
 * file. */
PAL_API uint64_t pal_tokenizer_fingerprint(const pal_tokenizer *tok);

/* Work memory and word cache of one thread. It belongs to the tokenizer it was made for and must be freed before it. */
PAL_API pal_status pal_tokenizer_scratch_new(pal_tokenizer_scratch **out, const pal_tokenizer *tok, pal_error *err);
PAL_API void pal_tokenizer_scratch_free(pal_tokenizer_scratch *scratch);

typedef struct pal_encode_options {
    bool add_special;     /* put the template's tokens (BOS, EOS, ...) around the text */
    bool special_as_text; /* "<|endoftext|>" in the text is text, not the control token */
    /* A byte for each of the text, 1 where people say it, else 0: a control token of which a byte is said is text. So
     * a prompt is encoded whole, and what people say makes no control token. NULL: nothing is said. */
    const unsigned char *said;
} pal_encode_options;

/* Appends the ids of a text. options NULL: no special tokens are added, those in the text are recognised. On failure
 * ids holds what it held before. */
PAL_API pal_status pal_tokenizer_encode(const pal_tokenizer *tok, pal_tokenizer_scratch *scratch, const void *text,
                                        size_t size, const pal_encode_options *options, pal_ids *ids, pal_error *err);

/* Appends the text of ids, byte for byte: nothing is replaced, so a cut through a character shows. skip_special leaves
 * control tokens out. An id that does not exist is refused. */
PAL_API pal_status pal_tokenizer_decode(const pal_tokenizer *tok, const uint32_t *ids, size_t count, bool skip_special,
                                        pal_bytes *text, pal_error *err);

/* Decoding one id at a time. push appends only whole UTF-8 characters (and bytes that can no longer become one) and
 * keeps the rest for the next call; finish appends what is left. */
PAL_API pal_status pal_decoder_new(pal_decoder **out, const pal_tokenizer *tok, bool skip_special, pal_error *err);
PAL_API pal_status pal_decoder_push(pal_decoder *decoder, uint32_t id, pal_bytes *text, pal_error *err);
PAL_API pal_status pal_decoder_finish(pal_decoder *decoder, pal_bytes *text, pal_error *err);
PAL_API void pal_decoder_free(pal_decoder *decoder);

#ifdef __cplusplus
}
#endif
#endif
