/* SPDX-License-Identifier: MIT */
#include "eval/documents.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/map.h"
#include "data/text.h"
#include "eval/answers.h"
#include "text/strings.h"
#include "text/utf8.h"

struct pal_eval_data {
    const char *path;
    const pal_tokenizer *tok;
    pal_tokenizer_scratch *scratch;
    pal_eval_options options;
    pal_shards *shards; /* one of these three */
    pal_documents *documents;
    pal_map map;
    const char *field;   /* of JSONL; NULL: plain text */
    pal_slice pages;     /* --split: the text that they are cut from, of the file or of the only document */
    uint64_t index;      /* documents given out */
    uint64_t done, size; /* bytes or tokens given out and in all */
};

void pal_eval_data_close(pal_eval_data *d) {
    if (!d) return;
    pal_tokenizer_scratch_free(d->scratch);
    pal_shards_close(d->shards);
    pal_documents_close(d->documents);
    pal_map_close(&d->map);
    pal_free(d);
}

static pal_status open_shards(pal_eval_data *d, pal_error *err) {
    pal_status st = pal_shards_open(&d->shards, d->path, err);
    if (st) return st;
    const pal_shards_info *info = pal_shards_info_of(d->shards);
    if (info->tokenizer != pal_tokenizer_fingerprint(d->tok))
        return pal_fail(err, PAL_E_ARGUMENT,
                        "%s: these shards were made with another tokenizer (fingerprint %016llx, this one has %016llx)",
                        d->path, (unsigned long long)info->tokenizer,
                        (unsigned long long)pal_tokenizer_fingerprint(d->tok));
    d->size = info->subset[d->options.subset].tokens;
    return PAL_OK;
}

static const char *name_of(const pal_eval_data *d) { return strcmp(d->path, "-") == 0 ? "standard input" : d->path; }

static pal_status open_data(pal_eval_data *d, pal_error *err) {
    struct stat info;
    pal_status st;
    const bool there = stat(d->path, &info) == 0, directory = there && S_ISDIR(info.st_mode),
               regular = there && S_ISREG(info.st_mode);
    const bool pages = d->options.split == PAL_SPLIT_WIKITEXT;
    d->field = directory ? NULL : pal_text_field(d->path, d->options.field);
    if (d->options.answers && (!d->field || pal_text_field_pairs(d->field)))
        return pal_fail(err, PAL_E_ARGUMENT, "%s: answers are found in JSONL of 'palimpsa needle' only", name_of(d));
    if (directory) {
        if (!pal_shards_exist(d->path))
            return pal_fail(err, PAL_E_IO,
                            "%s: a directory without shards.json; expected shards, or a text or JSONL file", d->path);
        if (d->options.field)
            return pal_fail(err, PAL_E_ARGUMENT, "%s: these are shards, which have no field '%s' (JSONL has fields)",
                            d->path, d->options.field);
        if (pages)
            return pal_fail(err, PAL_E_ARGUMENT,
                            "%s: these are shards, whose documents are not split (a plain text is)", d->path);
        return open_shards(d, err);
    }
    if (d->field && pages)
        return pal_fail(err, PAL_E_ARGUMENT, "%s: JSONL has a document a line, which is not split (a plain text is)",
                        name_of(d));
    if ((st = pal_tokenizer_scratch_new(&d->scratch, d->tok, err))) return st;
    if (regular) d->size = (uint64_t)info.st_size;
    st = regular && pages ? pal_map_open(&d->map, d->path, err)
                          : pal_documents_open(&d->documents, d->path, d->field, PAL_DOCUMENT_MAX, err);
    d->pages = (pal_slice){ d->map.data, d->map.size };
    if (!st && d->options.subset != PAL_SUBSET_ALL)
        st = pal_fail(err, PAL_E_ARGUMENT, "%s: a file is measured whole (a directory of shards has parts)",
                      name_of(d));
    return st;
}

pal_status pal_eval_data_open(pal_eval_data **out, const char *path, const pal_tokenizer *tok,
                              const pal_eval_options *options, pal_error *err) {
    pal_status st;
    void *block;
    *out = NULL;
    if ((st = pal_alloc_named(&block, 1, sizeof(pal_eval_data), "a list of documents", err))) return st;
    pal_eval_data *d = block;
    *d = (pal_eval_data){ .path = path, .tok = tok, .options = *options };
    if ((st = open_data(d, err))) {
        pal_eval_data_close(d);
        return st;
    }
    *out = d;
    return PAL_OK;
}

/* "= Title =" between blanks; "= = Section = =" is none. */
static bool is_heading(const unsigned char *line, size_t size) {
    while (size && line[0] == ' ') line++, size--;
    while (size && (line[size - 1] == ' ' || line[size - 1] == '\r' || line[size - 1] == '\n')) size--;
    return size >= 5 && memcmp(line, "= ", 2) == 0 && memcmp(line, "= =", 3) != 0 &&
           memcmp(line + size - 2, " =", 2) == 0 && memcmp(line + size - 3, "= =", 3) != 0;
}

size_t pal_wikitext_page(pal_slice text) {
    size_t at = 0;
    while (at < text.size) {
        const unsigned char *end = memchr(text.data + at, '\n', text.size - at);
        const size_t size = end ? (size_t)(end - (text.data + at)) + 1 : text.size - at;
        if (at && is_heading(text.data + at, size)) return at;
        at += size;
    }
    return text.size;
}

static bool only_blanks(pal_slice text) {
    for (size_t i = 0; i < text.size;) {
        uint32_t code = 0;
        const size_t n = pal_utf8_read(text.data + i, text.size - i, &code);
        if (!n || !pal_is_blank(code)) return false;
        i += n;
    }
    return true;
}

static pal_status next_document(pal_eval_data *d, pal_slice *text, bool *found, pal_error *err) {
    const pal_status st = pal_documents_next(d->documents, text, found, err);
    if (st != PAL_E_FORMAT || d->field) return st;
    const pal_error why = *err;
    return pal_fail(err, st, "%s; %s", why.text,
                    d->options.split == PAL_SPLIT_WIKITEXT
                        ? "pages of a longer text are read from a file"
                        : "make shards of it with 'palimpsa tokenize' and evaluate those");
}

static pal_status next_page(pal_eval_data *d, pal_slice *text, bool *found, pal_error *err) {
    pal_status st;
    *found = d->documents || d->pages.data; /* an empty file gives a map without data */
    if (!*found) return PAL_OK;
    if (!d->pages.data && ((st = next_document(d, &d->pages, found, err)) || !*found)) return st;
    do { /* what stands before the first heading is not a page unless it says something */
        const pal_slice rest = { d->pages.data + d->done, d->pages.size - (size_t)d->done };
        if (!(*found = rest.size > 0)) return PAL_OK;
        *text = (pal_slice){ rest.data, pal_wikitext_page(rest) };
        d->done += text->size;
    } while (only_blanks(*text));
    return PAL_OK;
}

/* The next text; *found false at the end. */
static pal_status next_text(pal_eval_data *d, pal_slice *text, bool *found, pal_error *err) {
    if (d->options.split == PAL_SPLIT_WIKITEXT) return next_page(d, text, found, err);
    const pal_status st = next_document(d, text, found, err);
    d->done = pal_documents_place(d->documents).offset;
    return st;
}

/* An error about a text, with the place of the text. */
static pal_status misfit(const pal_eval_data *d, const pal_slice *text, pal_error *err) {
    const pal_error why = *err;
    if (d->field)
        return pal_fail(err, why.status, "%s: line %" PRIu64 ": %s", name_of(d), pal_documents_place(d->documents).line,
                        why.text);
    if (d->options.split == PAL_SPLIT_WIKITEXT)
        return pal_fail(err, why.status, "%s: page %" PRIu64 ", from byte %zu on: %s", name_of(d), d->index + 1,
                        (size_t)d->done - text->size, why.text);
    return pal_fail(err, why.status, "%s: %s", name_of(d), why.text);
}

static pal_status append_stored(const pal_eval_data *d, const pal_document *stored, pal_ids *ids, pal_error *err) {
    const uint32_t vocabulary = pal_shards_info_of(d->shards)->vocabulary;
    const pal_status st = pal_ids_reserve(ids, ids->count + (size_t)stored->tokens, err);
    if (st) return st;
    for (uint64_t i = 0; i < stored->tokens; i++) {
        const uint32_t id = pal_document_token(stored, i);
        if (id >= vocabulary)
            return pal_fail(err, PAL_E_FORMAT, "%s: document %llu holds id %u, the vocabulary has %u", d->path,
                            (unsigned long long)d->index, id, vocabulary);
        ids->data[ids->count++] = id;
    }
    return PAL_OK;
}

/* The next document, with the pieces of it that shards end in. */
static pal_status next_of_shards(pal_eval_data *d, pal_eval_document *doc, bool *found, pal_error *err) {
    const pal_shards_info *info = pal_shards_info_of(d->shards);
    const uint64_t count = info->subset[d->options.subset].documents;
    const size_t before = doc->ids.count;
    pal_status st;
    if (!(*found = d->index < count)) return PAL_OK;
    doc->bytes = doc->words = 0;
    for (bool first = true; d->index < count; first = false) {
        const pal_document stored = pal_shards_document(d->shards, d->options.subset, d->index);
        if (!first && !stored.continues) break;
        if ((st = append_stored(d, &stored, &doc->ids, err))) return st;
        d->index++;
        d->done += stored.tokens;
        doc->bytes += stored.bytes;
        doc->words += stored.words;
    }
    if (info->eos >= 0 && doc->ids.count > before && doc->ids.data[doc->ids.count - 1] == (uint32_t)info->eos)
        doc->ids.count--;
    return PAL_OK;
}

/* Which of the ids from `first` on answer a question of the document. */
static pal_status find_answers(const pal_eval_data *d, pal_slice text, pal_eval_document *doc, size_t first,
                               pal_error *err) {
    pal_answers found;
    doc->distances.count = 0;
    pal_status st = pal_ids_reserve(&doc->distances, doc->ids.count, err);
    if (st) return st;
    memset(doc->distances.data, 0, first * sizeof *doc->distances.data);
    st = pal_answers_find(&found, doc->distances.data + first, pal_documents_row(d->documents), text, d->tok,
                          doc->ids.data + first, doc->ids.count - first, err);
    if (st) return misfit(d, &text, err);
    doc->distances.count = doc->ids.count;
    doc->bytes = found.bytes;
    doc->words = found.count;
    return PAL_OK;
}

pal_status pal_eval_data_next(pal_eval_data *d, pal_eval_document *doc, bool *found, pal_error *err) {
    const size_t before = doc->ids.count;
    pal_status st;
    do {
        if (d->shards) {
            if ((st = next_of_shards(d, doc, found, err)) || !*found) return st;
            continue;
        }
        pal_slice text;
        if ((st = next_text(d, &text, found, err)) || !*found) return st;
        if (pal_tokenizer_encode(d->tok, d->scratch, text.data, text.size, NULL, &doc->ids, err))
            return misfit(d, &text, err);
        d->index++;
        doc->bytes = text.size;
        doc->words = pal_text_words(text);
        if (d->options.answers && (st = find_answers(d, text, doc, before, err))) return st;
    } while (doc->ids.count == before);
    return PAL_OK;
}

double pal_eval_data_done(const pal_eval_data *d) {
    if (!d->size) return NAN;
    return d->done < d->size ? (double)d->done / (double)d->size : 1;
}
