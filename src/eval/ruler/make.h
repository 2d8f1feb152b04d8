/* SPDX-License-Identifier: MIT */
/* Makes RULER's thirteen tasks: prompts of a given length in tokens that hide facts in long texts, with the answers.
 * Sizes, random numbers and their order are RULER's, so that with its sentences (templates), word lists and documents
 * the rows are its own, byte for byte. Without them the sentences are ours and the words are made of syllables. */
#ifndef PAL_EVAL_RULER_MAKE_H
#define PAL_EVAL_RULER_MAKE_H

#include "eval/ruler.h"
#include "text/strings.h"

/* Sentences with {names} to be filled; docs/how-to/evaluate.md lists them. Starts from zeroes: our own sentences. */
typedef struct pal_ruler_templates {
    const char *noise;                          /* a line without meaning */
    const char *needle;                         /* {type} {key} {value} */
    const char *one, *one_answer;               /* a single value is asked for: {type} {text} {query} */
    const char *many, *many_answer;             /* several are */
    const char *variable_first, *variable_copy; /* {name} {value}; {name} {from} */
    const char *variables, *variables_answer;   /* {text} {value}; {count} {value} */
    const char *common, *common_answer;         /* {text} */
    const char *frequent, *frequent_answer;     /* {text} */
    const char *document;                       /* {number} {text} */
    const char *question, *question_answer;     /* {text} {query} */
    json_t *file;                               /* what those from a file point into */
} pal_ruler_templates;
/* path NULL: ours. A file is an object with any of the names above; ours stand for the others. */
pal_status pal_ruler_templates_read(pal_ruler_templates *out, const char *path, pal_error *err);
void pal_ruler_templates_free(pal_ruler_templates *t);

typedef struct pal_ruler_question {
    const json_t *query, *outputs;
    uint32_t own;       /* document; PAL_NO_ID: all that are near */
    size_t near, count; /* where in the list `near` documents begin that come before others, its own among them */
} pal_ruler_question;
typedef struct pal_ruler_questions {
    json_t *file;
    pal_strings documents; /* distinct, by code point */
    pal_ids near;          /* what questions about one article share */
    pal_ruler_question *list;
    size_t count, capacity;
} pal_ruler_questions;

/* What tasks are made from. Starts from zeroes. */
typedef struct pal_ruler_sources {
    pal_bytes text; /* runs of white space are one blank, none at the ends */
    size_t *word_end;
    size_t words, word_capacity;
    size_t (*sentence)[2]; /* begin and end in text */
    size_t sentences, sentence_capacity;
    pal_strings adjectives, nouns, all_words; /* distinct, by code point; none: words are made of syllables */
    uint32_t *pairs; /* adjective * nouns + noun, by code point of "adjective-noun", distinct */
    size_t pair_count;
    pal_ruler_questions questions[2]; /* qa_1: SQuAD 2.0, qa_2: HotpotQA */
} pal_ruler_sources;
void pal_ruler_sources_free(pal_ruler_sources *s);
/* A text, or the field `text` of a JSON object. cuts: lines with begin and end of each sentence in bytes of the text as
 * it is kept; NULL: sentences end at . ? ! before a blank. */
pal_status pal_ruler_read_text(pal_ruler_sources *s, const char *path, const char *cuts, pal_error *err);
/* adjectivelist.txt, nounlist.txt and verblist.txt, a word a line. */
pal_status pal_ruler_read_words(pal_ruler_sources *s, const char *directory, pal_error *err);
pal_status pal_ruler_read_squad(pal_ruler_sources *s, const char *path, pal_error *err);
pal_status pal_ruler_read_hotpot(pal_ruler_sources *s, const char *path, pal_error *err);
/* What a task lacks, such as "a text"; NULL: nothing. */
const char *pal_ruler_lacks(const pal_ruler_sources *s, const pal_ruler_task *task);

enum { PAL_RULER_SHORTEST = 512, PAL_RULER_LONGEST = 1 << 22 };

typedef struct pal_ruler_maker pal_ruler_maker;
/* Finds the size of haystack that fits `length` tokens, those to be written among them. Everything is borrowed. */
pal_status pal_ruler_maker_new(pal_ruler_maker **out, const pal_ruler_task *task, const pal_ruler_templates *templates,
                               const pal_ruler_sources *sources, const pal_tokenizer *tokenizer, int length,
                               uint32_t seed, pal_error *err);
void pal_ruler_maker_free(pal_ruler_maker *m);

typedef struct pal_ruler_sample {
    size_t index;            /* its number; of needles: characters before the first answer */
    pal_slice input, prefix; /* borrowed until the next one */
    const pal_strings *outputs;
    size_t tokens; /* of input and prefix, and those to be written */
    bool has_position;
    size_t answer_position; /* needles: tokens before the first answer */
} pal_ruler_sample;
/* The next row. */
pal_status pal_ruler_make(pal_ruler_maker *m, pal_ruler_sample *sample, pal_error *err);
/* The row as a line of JSON in ASCII, as Python writes it. Appends. */
pal_status pal_ruler_write(const pal_ruler_sample *sample, pal_bytes *line, pal_error *err);

#endif
