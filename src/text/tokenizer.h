/* SPDX-License-Identifier: MIT */
/* Inside a tokenizer: one struct that every reader fills and every encoder reads, and the scratch of one thread.
 *
 * The way of a text: added tokens are cut out of it, the rest is normalised, added tokens are cut out of that too, what
 * remains is split into pre-tokens, and the model (BPE merges, SentencePiece merges, or unigram) turns each into ids.
 * SentencePiece models skip all but their own normaliser. */
#ifndef PAL_TEXT_TOKENIZER_H
#define PAL_TEXT_TOKENIZER_H

#include "text/strings.h"

typedef struct pal_pattern pal_pattern; /* text/pattern.h */
struct json_t;

typedef enum pal_text_model { PAL_MODEL_BPE, PAL_MODEL_SPM_BPE, PAL_MODEL_UNIGRAM } pal_text_model;

/* Flags of an id. */
enum {
    PAL_TOKEN_PRESENT = 1,
    PAL_TOKEN_IN_MODEL = 2, /* known to the merges or the unigram; the others are added tokens only */
    PAL_TOKEN_SPECIAL = 4,
    PAL_TOKEN_ADDED = 8,
    PAL_TOKEN_BYTE = 16,    /* <0xNN> */
    PAL_TOKEN_UNUSED = 32,  /* SentencePiece: never the result, split again */
    PAL_TOKEN_USER = 64,    /* SentencePiece: matched before everything */
    PAL_TOKEN_CONTROL = 128 /* special, or a mark of the chat template: with special_as_text it is text */
};

typedef struct pal_added_token {
    uint32_t id;
    bool single_word, lstrip, rstrip, normalized, special;
} pal_added_token;

/* Added tokens that are looked for in one kind of text; values of the trie are ids' indices in pal_tokenizer.added. */
typedef struct pal_added_set {
    pal_trie trie;
    bool first[256], second[256]; /* bytes at which a match can begin, and continue */
} pal_added_set;

typedef enum pal_normal_kind { PAL_NFC, PAL_NFD, PAL_NFKC, PAL_NFKD, PAL_PREPEND, PAL_REPLACE } pal_normal_kind;
typedef struct pal_normal_step {
    pal_normal_kind kind;
    pal_bytes from, to; /* PAL_REPLACE: from -> to; PAL_PREPEND: to */
} pal_normal_step;

typedef enum pal_split_kind {
    PAL_SPLIT_GPT2,
    PAL_SPLIT_PATTERN,
    PAL_SPLIT_DIGITS,
    PAL_SPLIT_BLANK_PREFIX,
    PAL_SPLIT_METASPACE
} pal_split_kind;
typedef enum pal_split_behaviour {
    PAL_ISOLATED,
    PAL_REMOVED,
    PAL_WITH_PREVIOUS,
    PAL_WITH_NEXT,
    PAL_CONTIGUOUS
} pal_split_behaviour;
typedef enum pal_prefix { PAL_PREFIX_NEVER, PAL_PREFIX_FIRST, PAL_PREFIX_ALWAYS } pal_prefix;
typedef struct pal_split_step {
    pal_split_kind kind;
    pal_split_behaviour behaviour; /* of a pattern's matches */
    bool invert;                   /* pattern: what lies between the matches counts as match */
    bool each;                     /* digits: one by one; metaspace: also split at blanks */
    pal_prefix prefix;             /* metaspace */
    pal_pattern *pattern;          /* pattern; NULL: the literal below */
    pal_bytes literal;             /* pattern: literal or source; metaspace: the sign that stands for a blank */
} pal_split_step;

enum { PAL_STEPS_MAX = 8 };

/* SentencePiece's normaliser. */
typedef struct pal_spm_rules {
    bool dummy_prefix, collapse_blanks, escape_blanks;
    bool prefix_once;      /* at the start of a text, not after a special token in it */
    pal_bytes charsmap;    /* as stored: u32 size of the double array, the array, strings that end with zero */
    pal_bytes unk_surface; /* what the unknown token decodes to */
    pal_trie user;         /* user-defined symbols */
} pal_spm_rules;

/* A chat template in Jinja's language. */
typedef struct pal_chat_template {
    pal_bytes name, text; /* the usual one is called "default" */
} pal_chat_template;

enum { PAL_TOKENIZER_FILES = 8 };

struct pal_tokenizer {
    pal_text_model model;
    const char *kind;
    size_t size;
    uint8_t *flags;          /* by id */
    pal_strings names;       /* by id: as the file spells it */
    pal_strings texts;       /* by id: what it decodes to, in the middle of a text */
    pal_strings first_texts; /* the same for the first token of a text, where that differs; else none */
    pal_strings keys;        /* by id, when byte_level: the bytes it stands for, empty when it stands for none */
    pal_string_map by_name;  /* every present id */
    pal_string_map by_key;   /* ids in the model by the bytes they match: keys when byte_level, else names */
    int64_t bos, eos;
    pal_ids ends; /* ids that end a text besides eos */
    uint32_t unk; /* or PAL_NO_ID */

    pal_pair_map merges; /* pair of ids -> rank, id */
    bool byte_level;     /* texts of the model are bytes, not characters */
    bool byte_fallback, fuse_unk, ignore_merges;
    bool strict; /* an unknown character is refused */
    bool words;  /* no token joins a non-blank with a blank sign that follows: words can be encoded one by one */
    uint32_t byte_id[256];     /* byte_level: id of a byte; else id of an ASCII character */
    uint32_t fallback_id[256]; /* id of <0xNN> */

    float *scores; /* SentencePiece, by id */
    float min_score, max_score;
    pal_trie pieces; /* unigram */
    pal_spm_rules spm;

    pal_added_token *added;
    size_t added_count;
    pal_added_set added_raw, added_normal;
    pal_normal_step normal[PAL_STEPS_MAX];
    size_t normal_count;
    pal_split_step split[PAL_STEPS_MAX];
    size_t split_count;
    pal_ids prefix, suffix; /* the template around a text */

    /* Decoding, in addition to texts. */
    bool join_blank;    /* a blank between tokens */
    size_t strip_start; /* blanks at the start of the text that are dropped */
    bool strip_blank;   /* SentencePiece: one blank at the very start is dropped, of a piece that spells it */

    pal_chat_template *templates;
    size_t template_count;

    uint64_t fingerprint;
    struct {
        const char *name; /* file in a directory; NULL: none */
        pal_bytes bytes;
    } files[PAL_TOKENIZER_FILES]; /* what pal_tokenizer_save writes: the first two are the tokenizer itself */
};

/* Whether an id ends a text: EOS, or another that the model's files name. */
bool pal_tokenizer_is_end(const pal_tokenizer *tok, uint32_t id);
/* The chat template that came with the tokenizer: from chat_template.jinja, tokenizer_config.json or a GGUF file. name:
 * "default", or another of several ("tool_use"). Empty: there is none. */
pal_slice pal_tokenizer_chat_template(const pal_tokenizer *tok, const char *name);

/* Control tokens that are not left out, with skip_special: the text has their names. Borrowed; count 0: none. */
void pal_decoder_show(pal_decoder *decoder, const uint32_t *ids, size_t count);
/* What an id would append to the text now, apart from an unfinished character before it. */
pal_status pal_decoder_peek(const pal_decoder *decoder, uint32_t id, pal_bytes *text, pal_error *err);
/* Whether tokens still lose or get blanks, because a text begins here. */
bool pal_decoder_begins(const pal_decoder *decoder);
void pal_decoder_forget(pal_decoder *decoder); /* the bytes of an unfinished character */

typedef struct pal_span {
    size_t start, size; /* in the text of this step */
} pal_span;
typedef struct pal_spans {
    pal_span *data;
    size_t count, capacity;
} pal_spans;

/* A node of the list that merges work on. For BPE `value` is an id, for SentencePiece the offset of its first byte. */
typedef struct pal_symbol {
    uint32_t value, prev, next, rank; /* rank of the pair with the next one; PAL_NO_ID: no such pair */
} pal_symbol;

#ifndef PAL_CACHE_SETS
#define PAL_CACHE_SETS (1 << 14)
#endif
enum { CACHE_KEY = 24, CACHE_IDS = 9, CACHE_SETS = PAL_CACHE_SETS }; /* a power of two */
typedef struct pal_cache_entry {
    uint64_t key[3]; /* the word's bytes, see pal_cache_key */
    uint8_t size;    /* of the word; 0: empty entry */
    uint8_t count;
    uint32_t ids[CACHE_IDS];
} pal_cache_entry;

struct pal_tokenizer_scratch {
    const pal_tokenizer *owner;
    pal_growth growth; /* of this text */
    pal_bytes normal[2];
    pal_bytes stage[2];
    pal_spans spans[2];
    int32_t *codes; /* normaliser */
    size_t codes_capacity;
    pal_symbol *symbols;
    size_t symbols_capacity;
    uint64_t *heap;
    size_t heap_count, heap_capacity;
    void *best; /* unigram */
    size_t best_capacity;
    pal_ids word;
    pal_cache_entry *cache;             /* CACHE_SETS x 2 */
    void *region, *limits;              /* of the patterns, made on first use */
    uint64_t steps_allowed, steps_left; /* of the patterns, for this text */
    double seconds_allowed, seconds_left, deadline; /* the same in time of this thread's processor, ... */
    double look_again;                  /* ... which cannot have come before the clock shows this */
};

/* Readers. `name` stands for the file in messages. They fill a zeroed tokenizer; the caller closes it on failure too.
 */
/* added: more tokens, from the files next to it (text/side_files.h); NULL: none. */
pal_status pal_read_tokenizer_json(pal_tokenizer *tok, const char *name, const void *bytes, size_t size,
                                   const struct json_t *added, pal_error *err);
pal_status pal_read_gpt2_files(pal_tokenizer *tok, const char *name, pal_slice vocab, pal_slice merges,
                               const struct json_t *added, pal_error *err);
pal_status pal_read_sentencepiece(pal_tokenizer *tok, const char *name, const void *bytes, size_t size,
                                  const struct json_t *added, pal_error *err);
pal_status pal_read_gguf_vocab(pal_tokenizer *tok, const char *name, const void *bytes, size_t size, pal_error *err);
/* One id for each number below `count`: for models whose ids stand for nothing that people write. */
pal_status pal_tokenizer_ids(pal_tokenizer **out, size_t count, pal_error *err);
/* The text of a tokenizer.json for "bytes". */
pal_status pal_builtin_bytes_json(pal_bytes *out, pal_error *err);

/* Makes a tokenizer from the text of a tokenizer.json, which it takes over. */
pal_status pal_tokenizer_from_json(pal_tokenizer **out, const char *name, pal_bytes *json, pal_error *err);

/* Vocabulary, filled by readers: names by id (data NULL: no such id), then what follows from them. */
pal_status pal_vocabulary_set(pal_tokenizer *tok, const char *name, const pal_slice *names, size_t count,
                              pal_error *err);
pal_status pal_vocabulary_finish(pal_tokenizer *tok, const char *name,
                                 pal_error *err); /* texts, keys, byte ids; flags are set */
pal_status pal_vocabulary_merge(pal_tokenizer *tok, const char *name, pal_slice left, pal_slice right, size_t rank,
                                pal_error *err);
void pal_byte_alphabet(uint32_t code_of[256]); /* byte -> code point of byte-level BPE */
/* From one to the other; both append, nothing when a name has other characters. */
pal_status pal_byte_level_name(pal_slice text, pal_bytes *out, pal_error *err);
pal_status pal_byte_level_text(pal_slice name, pal_bytes *out, pal_error *err);
bool pal_is_byte_name(pal_slice name, unsigned *byte); /* <0xNN> */
/* A token's name for a message: at most 40 bytes, control characters replaced. */
typedef struct pal_shown {
    char text[48];
} pal_shown;
pal_shown pal_show(pal_slice name);
/* True when no name of a token in the model has the blank sign U+2581 right after something else. */
bool pal_vocabulary_keeps_words(const pal_tokenizer *tok);

/* Added tokens, in the order of the package: sets are made once normaliser and list are complete. */
pal_status pal_added_finish(pal_tokenizer *tok, const char *name, pal_error *err);
typedef struct pal_added_match {
    size_t start, end; /* the token, with the blanks it strips */
    const pal_added_token *token;
} pal_added_match;
/* The next added token at or after *at, where *from is the end of what is already done. False: none. said: as in
 * pal_encode_options, of this text. */
bool pal_added_next(const pal_tokenizer *tok, const pal_added_set *set, bool special_as_text, const unsigned char *said,
                    pal_slice text, size_t *at, size_t from, pal_added_match *match);

/* Encoding, each for one part of the way. `first`: the text starts at the start of the input. s->growth is set. */
pal_status pal_normalize(const pal_tokenizer *tok, pal_tokenizer_scratch *s, pal_slice text, pal_slice *out,
                         pal_error *err);
void pal_normal_scratch_free(pal_tokenizer_scratch *s); /* what normalising took of it */
pal_status pal_encode_segment(const pal_tokenizer *tok, pal_tokenizer_scratch *s, pal_slice text, bool first,
                              pal_ids *ids, pal_error *err);
size_t pal_gpt2_next(const unsigned char *text, size_t size); /* bytes of the next pre-token; size > 0 */
pal_status pal_bpe_word(const pal_tokenizer *tok, pal_tokenizer_scratch *s, const unsigned char *word, size_t size,
                        pal_ids *ids, pal_error *err);
pal_status pal_bpe_plain(const pal_tokenizer *tok, pal_slice text, pal_ids *ids,
                         pal_error *err); /* without any merges */
/* prefix: put the blank in front that these rules may ask for. */
pal_status pal_spm_normalize(const pal_tokenizer *tok, pal_slice text, bool prefix, bool special_as_text, pal_growth *g,
                             pal_bytes *out, pal_error *err);
/* special_as_text: marks of the chat template are text, even where they are user-defined symbols. */
pal_status pal_spm_encode(const pal_tokenizer *tok, pal_tokenizer_scratch *s, pal_slice text, bool prefix,
                          bool special_as_text, pal_ids *ids, pal_error *err);
pal_status pal_unigram_encode(const pal_tokenizer *tok, pal_tokenizer_scratch *s, pal_slice normal,
                              bool special_as_text, pal_ids *ids, pal_error *err);
/* SentencePiece's kinds of pieces, as its files and GGUF number them. */
enum {
    PAL_PIECE_NONE, /* of a token that is not in the model */
    PAL_PIECE_NORMAL,
    PAL_PIECE_UNKNOWN,
    PAL_PIECE_CONTROL,
    PAL_PIECE_USER,
    PAL_PIECE_UNUSED,
    PAL_PIECE_BYTE
};
/* After names, scores and rules are set: everything that follows from the kinds of pieces (one byte each). */
pal_status pal_spm_finish(pal_tokenizer *tok, const char *name, const uint8_t *kinds, pal_error *err);
/* SentencePiece's last step: bytes of what is unknown, or one id for a run of it. `start`: ids->count before the text.
 */
pal_status pal_spm_emit(const pal_tokenizer *tok, pal_slice piece, uint32_t id, size_t start, pal_ids *ids,
                        pal_error *err);

/* Merges symbols 0 .. count-1 (linked by prev, next; PAL_NO_ID ends) by the pair of lowest rank, the leftmost of
 * equals. pair(): rank of two neighbours, or PAL_NO_ID, and, where value is not NULL, the value of their merger. */
typedef uint32_t pal_pair_fn(const void *arg, const pal_symbol *symbols, uint32_t left, uint32_t right,
                             uint32_t *value);
pal_status pal_merge(pal_tokenizer_scratch *s, size_t count, pal_pair_fn *pair, const void *arg, pal_error *err);
pal_status pal_symbols_reserve(pal_tokenizer_scratch *s, size_t count, pal_error *err);

/* The word cache: two entries per set, the one used last in front. NULL: not there, or too long to be kept. */
static inline uint64_t pal_load(const unsigned char *p, size_t bytes) {
    uint64_t word = 0;
    memcpy(&word, p, bytes);
    return word;
}
/* The word in three numbers that, with its size, distinguish it from every other: loads of fixed sizes that may
 * overlap. */
static inline bool pal_cache_key(uint64_t key[3], const unsigned char *word, size_t size) {
    if (size == 0 || size > CACHE_KEY) return false;
    key[1] = key[2] = 0;
    if (size >= 8) {
        key[0] = pal_load(word, 8);
        key[1] = size >= 16 ? pal_load(word + 8, 8) : 0;
        key[2] = pal_load(word + size - 8, 8);
    } else if (size >= 4) {
        key[0] = pal_load(word, 4) | pal_load(word + size - 4, 4) << 32;
    } else {
        key[0] = (uint64_t)word[0] | (uint64_t)word[size / 2] << 8 | (uint64_t)word[size - 1] << 16;
    }
    return true;
}
const pal_cache_entry *pal_cache_find(pal_tokenizer_scratch *s, const uint64_t key[3], size_t size);
void pal_cache_store(pal_tokenizer_scratch *s, const uint64_t key[3], size_t size, const uint32_t *ids, size_t count);

/* Ids may have holes, and one of a hole cannot be decoded. */
static inline bool pal_is_token(const pal_tokenizer *tok, int64_t id) {
    return id >= 0 && (uint64_t)id < tok->size && (tok->flags[id] & PAL_TOKEN_PRESENT);
}

/* The tokenizer in a file or directory that exists, even one that is called 'bytes' or 'chars'. */
pal_status pal_tokenizer_open_path(pal_tokenizer **out, const char *path, pal_error *err);

/* Every file that a tokenizer may consist of (ends with NULL), and which of those that can be opened a directory holds:
 * the first by pal_tokenizer_open's order; NULL: none. */
extern const char *const pal_tokenizer_files[];
const char *pal_tokenizer_file_in(const char *directory);

/* What is looked for at each place of a text (added tokens, user-defined symbols, unigram's pieces) is not longer than
 * this: it bounds what a place costs. */
enum { PAL_MATCHED_MAX = 1024 };
/* How often the size of its tokens a file's rules may add to them. */
enum { PAL_TOKENS_GROW = 4, PAL_TEXTS_GROW = 16 };

/* A tokenizer file larger than this is refused, which bounds what reading one can take. */
#define PAL_TOKENIZER_FILE_MAX ((size_t)256 << 20)

#endif
