/* SPDX-License-Identifier: MIT */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/map.h"
#include "base/size.h"
#include "eval/answers/words.h"
#include "eval/ruler/inside.h"
#include "format/json.h"

static void free_questions(pal_ruler_questions *q) {
    pal_ids_free(&q->near);
    pal_free(q->list);
    pal_strings_free(&q->documents);
    json_decref(q->file);
}

void pal_ruler_sources_free(pal_ruler_sources *s) {
    pal_bytes_free(&s->text);
    pal_free(s->word_end);
    pal_free(s->sentence);
    pal_strings_free(&s->adjectives);
    pal_strings_free(&s->nouns);
    pal_strings_free(&s->all_words);
    pal_free(s->pairs);
    for (int i = 0; i < 2; i++) free_questions(&s->questions[i]);
    *s = (pal_ruler_sources){ 0 };
}

static pal_status add_sentence(pal_ruler_sources *s, size_t begin, size_t end, pal_error *err) {
    void *block = s->sentence;
    const pal_status st = pal_grow(&block, &s->sentence_capacity, s->sentences, s->sentences + 1, sizeof *s->sentence,
                                   err);
    s->sentence = block;
    if (st) return st;
    s->sentence[s->sentences][0] = begin;
    s->sentence[s->sentences++][1] = end;
    return PAL_OK;
}

static pal_status collapse(pal_ruler_sources *s, pal_slice text, pal_error *err) {
    pal_strings words = { 0 };
    pal_status st = pal_split_words(&words, text, err);
    for (size_t i = 0; i < words.count && !st; i++) {
        const pal_slice word = pal_strings_at(&words, i);
        void *block = s->word_end;
        if (i) st = pal_bytes_append(&s->text, " ", 1, err);
        if (!st) st = pal_bytes_append(&s->text, word.data, word.size, err);
        if (!st) st = pal_grow(&block, &s->word_capacity, s->words, s->words + 1, sizeof *s->word_end, err);
        s->word_end = block;
        if (!st) s->word_end[s->words++] = s->text.size;
    }
    pal_strings_free(&words);
    return st;
}

static pal_status find_sentences(pal_ruler_sources *s, pal_error *err) {
    pal_status st = PAL_OK;
    for (size_t i = 0, begin = 0; i < s->text.size && !st; i++) {
        const bool end = i + 1 == s->text.size || (strchr(".?!", s->text.data[i]) && s->text.data[i + 1] == ' ');
        if (!end) continue;
        st = add_sentence(s, begin, i + 1, err);
        begin = i + 2;
    }
    return st;
}

static pal_status read_cuts(pal_ruler_sources *s, const char *path, pal_error *err) {
    size_t number = 0, last = 0;
    pal_map map;
    pal_status st = pal_map_open(&map, path, err);
    for (size_t at = 0; at < map.size && !st;) {
        char line[64], *next; /* room for two numbers; what follows them does not count */
        const unsigned char *text = map.data + at, *stop = memchr(text, '\n', map.size - at);
        const size_t size = stop ? (size_t)(stop - text) : map.size - at;
        number++;
        at += size + 1;
        if (size && text[0] == '#') continue;
        snprintf(line, sizeof line, "%.*s", (int)(size < sizeof line ? size : sizeof line - 1), (const char *)text);
        const unsigned long long begin = strtoull(line, &next, 10), end = strtoull(next, NULL, 10);
        if (next == line || begin < last || end <= begin || end > s->text.size)
            st = pal_fail(
                err, PAL_E_FORMAT,
                "%s: line %zu: expected begin and end of a sentence after the last one, in a text of %zu bytes", path,
                number, s->text.size);
        else st = add_sentence(s, (size_t)begin, last = (size_t)end, err);
    }
    pal_map_close(&map);
    if (!st && last != s->text.size)
        st = pal_fail(err, PAL_E_FORMAT, "%s: the last sentence ends at byte %zu, the text at %zu", path, last,
                      s->text.size);
    return st;
}

static bool ends_in(const char *path, const char *ending) {
    const size_t n = strlen(path), k = strlen(ending);
    return n > k && strcmp(path + n - k, ending) == 0;
}

pal_status pal_ruler_read_text(pal_ruler_sources *s, const char *path, const char *cuts, pal_error *err) {
    pal_status st;
    if (ends_in(path, ".json")) {
        json_error_t why;
        json_t *file = pal_json_load(path, 0, &why, NULL);
        const json_t *text = json_object_get(file, "text");
        if (!file) st = pal_fail(err, why.line < 0 ? PAL_E_IO : PAL_E_FORMAT, "%s: %s", path, why.text);
        else if (!json_is_string(text)) st = pal_fail(err, PAL_E_FORMAT, "%s: there is no text in field 'text'", path);
        else
            st = collapse(s, (pal_slice){ (const unsigned char *)json_string_value(text), json_string_length(text) },
                          err);
        json_decref(file);
    } else {
        pal_map map = { 0 };
        if (!(st = pal_map_open(&map, path, err))) st = collapse(s, (pal_slice){ map.data, map.size }, err);
        pal_map_close(&map);
    }
    if (!st && !s->words) st = pal_fail(err, PAL_E_FORMAT, "%s: there is no text in it", path);
    if (!st) st = cuts ? read_cuts(s, cuts, err) : find_sentences(s, err);
    return st;
}

static int by_bytes(const void *a, const void *b) {
    const pal_slice x = *(const pal_slice *)a, y = *(const pal_slice *)b;
    const size_t n = x.size < y.size ? x.size : y.size;
    const int order = n ? memcmp(x.data, y.data, n) : 0;
    return order ? order : (x.size > y.size) - (x.size < y.size);
}

/* The distinct ones, by code point, which is the order of UTF-8. */
static pal_status sort_distinct(pal_strings *strings, pal_error *err) {
    pal_slice *list;
    pal_strings sorted = { 0 };
    pal_status st = pal_alloc_named((void **)&list, strings->count + 1, sizeof *list, "a list of words", err);
    if (st) return st;
    for (size_t i = 0; i < strings->count; i++) list[i] = pal_strings_at(strings, i);
    qsort(list, strings->count, sizeof *list, by_bytes);
    for (size_t i = 0; i < strings->count && !st; i++)
        if (!i || by_bytes(&list[i], &list[i - 1]) != 0) st = pal_strings_add(&sorted, list[i].data, list[i].size, err);
    pal_free(list);
    pal_strings_free(strings);
    *strings = sorted;
    return st;
}

enum { LONGEST_WORD = 64 }; /* pairs of words are compared by millions */

static pal_status read_lines(pal_strings *out, const char *directory, const char *name, pal_error *err) {
    char path[4096];
    pal_map map = { 0 };
    snprintf(path, sizeof path, "%s/%s", directory, name);
    pal_status st = pal_map_open(&map, path, err);
    for (size_t at = 0; at < map.size && !st;) {
        const unsigned char *s = map.data + at, *end = memchr(s, '\n', map.size - at);
        const size_t size = end ? (size_t)(end - s) : map.size - at;
        const pal_slice word = pal_py_strip((pal_slice){ s, size });
        if (word.size > LONGEST_WORD)
            st = pal_fail(err, PAL_E_FORMAT, "%s: a word of %zu bytes; expected at most %d", path, word.size,
                          LONGEST_WORD);
        else if (word.size) st = pal_strings_add(out, word.data, word.size, err);
        at += size + 1;
    }
    if (!st && !out->count) st = pal_fail(err, PAL_E_FORMAT, "%s: there is no word in it", path);
    pal_map_close(&map);
    return st;
}

typedef struct {
    const unsigned char *part[3]; /* adjective, hyphen, noun */
    size_t size[3];
} joined;

static joined join(const pal_ruler_sources *s, uint32_t pair) {
    const pal_slice a = pal_strings_at(&s->adjectives, pair / s->nouns.count),
                    n = pal_strings_at(&s->nouns, pair % s->nouns.count);
    return (joined){ { a.data, (const unsigned char *)"-", n.data }, { a.size, 1, n.size } };
}

static int by_joined(const void *a, const void *b, void *sources) {
    const joined x = join(sources, *(const uint32_t *)a), y = join(sources, *(const uint32_t *)b);
    size_t i = 0, j = 0, at = 0, to = 0; /* part, and place in it */
    for (;;) {
        while (i < 3 && at == x.size[i]) i++, at = 0;
        while (j < 3 && to == y.size[j]) j++, to = 0;
        if (i == 3 || j == 3) return (j == 3) - (i == 3);
        const int order = (int)x.part[i][at++] - (int)y.part[j][to++];
        if (order) return order;
    }
}

/* Adjective by adjective the pairs are in order except for those like "blue-eyed", which stand among those of "blue".
 */
static pal_status sort_pairs(pal_ruler_sources *s, pal_error *err) {
    const size_t nouns = s->nouns.count, all = pal_size_mul(s->adjectives.count, nouns);
    enum { MOST = 1 << 24 /* twice those of RULER's own lists */, MOST_SORTED = 1 << 22 };
    size_t sorted = 0;
    if (all > MOST) return pal_fail(err, PAL_E_FORMAT, "%zu pairs of words: expected at most %d", all, MOST);
    pal_status st = pal_alloc_named((void **)&s->pairs, all, sizeof *s->pairs, "pairs of words", err);
    if (st) return st;
    for (uint32_t i = 0; i < all; i++) s->pairs[i] = i;
    for (size_t a = 0, end; a < s->adjectives.count; a = end) {
        const pal_slice first = pal_strings_at(&s->adjectives, a);
        for (end = a + 1; end < s->adjectives.count; end++) {
            const pal_slice next = pal_strings_at(&s->adjectives, end);
            if (next.size <= first.size || memcmp(next.data, first.data, first.size) != 0 ||
                next.data[first.size] > '-')
                break;
        }
        if (end == a + 1) continue;
        if ((sorted += (end - a) * nouns) > MOST_SORTED)
            return pal_fail(err, PAL_E_FORMAT, "too many adjectives begin with others, such as '%.*s'",
                            (int)(first.size < 40 ? first.size : 40), (const char *)first.data);
        qsort_r(s->pairs + a * nouns, (end - a) * nouns, sizeof *s->pairs, by_joined, s);
    }
    s->pair_count = 1;
    for (size_t i = 1; i < all; i++)
        if (by_joined(&s->pairs[i], &s->pairs[s->pair_count - 1], s) != 0) s->pairs[s->pair_count++] = s->pairs[i];
    return PAL_OK;
}

pal_status pal_ruler_read_words(pal_ruler_sources *s, const char *directory, pal_error *err) {
    pal_status st = read_lines(&s->nouns, directory, "nounlist.txt", err);
    if (!st) st = read_lines(&s->adjectives, directory, "adjectivelist.txt", err);
    if (!st) st = read_lines(&s->all_words, directory, "verblist.txt", err);
    for (size_t i = 0; i < s->nouns.count + s->adjectives.count && !st; i++) {
        const pal_slice word = i < s->nouns.count ? pal_strings_at(&s->nouns, i)
                                                  : pal_strings_at(&s->adjectives, i - s->nouns.count);
        st = pal_strings_add(&s->all_words, word.data, word.size, err);
    }
    if (!st) st = sort_distinct(&s->nouns, err);
    if (!st) st = sort_distinct(&s->adjectives, err);
    if (!st) st = sort_distinct(&s->all_words, err);
    return st ? st : sort_pairs(s, err);
}

/* Finding documents by their text while questions are read. */
typedef struct {
    pal_ruler_questions *q;
    pal_string_map map;
    const char *path;
} reading;

static pal_status index_documents(reading *r, pal_error *err) {
    pal_status st = sort_distinct(&r->q->documents, err);
    if (!st) st = pal_string_map_reserve(&r->map, r->q->documents.count + 1, err);
    for (uint32_t i = 0; i < r->q->documents.count && !st; i++) pal_string_map_add(&r->map, &r->q->documents, i);
    return st;
}

static pal_status open_questions(reading *r, pal_ruler_questions *q, const char *path, pal_error *err) {
    json_error_t why;
    *r = (reading){ .q = q, .path = path };
    if ((q->file = pal_json_load(path, 0, &why, NULL))) return PAL_OK;
    return pal_fail(err, why.line < 0 ? PAL_E_IO : PAL_E_FORMAT, "%s: %s", path, why.text);
}

/* A question with its own document and the `count` last ones of those near; outputs becomes the file's. */
static pal_status add_question(reading *r, const json_t *query, const json_t *outputs, uint32_t own, size_t count,
                               pal_error *err) {
    void *block = r->q->list;
    for (size_t i = 0; i < json_array_size(outputs); i++)
        if (!json_is_string(json_array_get(outputs, i))) query = NULL;
    if (!json_is_string(query) || !json_array_size(outputs))
        return pal_fail(err, PAL_E_FORMAT, "%s: question %zu: expected a text and its answers", r->path,
                        r->q->count + 1);
    const pal_status st = pal_grow(&block, &r->q->capacity, r->q->count, r->q->count + 1, sizeof *r->q->list, err);
    r->q->list = block;
    if (st) return st;
    r->q->list[r->q->count++] = (pal_ruler_question){
        .query = query, .outputs = outputs, .own = own, .near = r->q->near.count - count, .count = count
    };
    return PAL_OK;
}

static pal_status misfit(const reading *r, const char *what, pal_error *err) {
    return pal_fail(err, PAL_E_FORMAT, "%s: expected %s", r->path, what);
}

static uint32_t document_of(const reading *r, const json_t *paragraph) {
    const json_t *text = json_object_get(paragraph, "context");
    return pal_string_map_find(&r->map, &r->q->documents, json_string_value(text), json_string_length(text));
}

/* Its questions; the article's documents, one for each paragraph, are the last ones of those near. */
static pal_status read_paragraph(reading *r, const json_t *paragraph, size_t documents, pal_error *err) {
    const json_t *qas = json_object_get(paragraph, "qas"), *qa;
    const uint32_t own = document_of(r, paragraph);
    size_t i, k;
    pal_status st = PAL_OK;
    json_array_foreach(qas, i, qa) {
        json_t *outputs;
        const json_t *answers = json_object_get(qa, "answers"), *answer;
        if (!json_is_object(qa)) return misfit(r, "objects in 'qas'", err);
        if (json_is_true(json_object_get(qa, "is_impossible"))) continue;
        if (!pal_json_set((json_t *)(uintptr_t)qa, "outputs", outputs = json_array()))
            return pal_fail(err, PAL_E_MEMORY, "out of memory for questions");
        json_array_foreach(answers, k, answer) {
            json_t *text = json_object_get(answer, "text");
            if (text && !pal_json_append(outputs, json_incref(text)))
                return pal_fail(err, PAL_E_MEMORY, "out of memory for questions");
        }
        if ((st = add_question(r, json_object_get(qa, "question"), outputs, own, documents, err))) return st;
    }
    return st;
}

pal_status pal_ruler_read_squad(pal_ruler_sources *s, const char *path, pal_error *err) {
    reading r;
    pal_status st = open_questions(&r, &s->questions[0], path, err);
    const json_t *data = json_object_get(s->questions[0].file, "data"), *article, *paragraph;
    size_t i, k;
    if (!st && !json_array_size(data)) st = misfit(&r, "articles in a list 'data'", err);
    for (int pass = 0; pass < 2 && !st; pass++) {
        json_array_foreach(data, i, article) {
            const json_t *paragraphs = json_object_get(article, "paragraphs");
            const size_t documents = json_array_size(paragraphs);
            for (k = 0; k < documents && pass && !st; k++)
                st = pal_ids_append(&r.q->near, document_of(&r, json_array_get(paragraphs, k)), err);
            json_array_foreach(paragraphs, k, paragraph) {
                const json_t *text = json_object_get(paragraph, "context");
                if (st) break;
                if (!json_is_string(text)) st = misfit(&r, "a text 'context' in every paragraph", err);
                else if (pass) st = read_paragraph(&r, paragraph, documents, err);
                else st = pal_strings_add(&r.q->documents, json_string_value(text), json_string_length(text), err);
            }
        }
        if (!pass && !st) st = index_documents(&r, err);
    }
    if (!st && !r.q->count) st = misfit(&r, "a question that can be answered", err);
    pal_string_map_free(&r.map);
    return st;
}

/* Title, line break, sentences. */
static pal_status hotpot_document(const reading *r, const json_t *entry, pal_bytes *text, pal_error *err) {
    const json_t *title = json_array_get(entry, 0), *sentences = json_array_get(entry, 1), *sentence;
    size_t i;
    text->size = 0;
    if (!json_is_string(title) || !json_is_array(sentences))
        return misfit(r, "a title and sentences in 'context'", err);
    pal_status st = pal_bytes_append(text, json_string_value(title), json_string_length(title), err);
    if (!st) st = pal_bytes_append(text, "\n", 1, err);
    json_array_foreach(sentences, i, sentence) {
        if (!st && !json_is_string(sentence)) st = misfit(r, "texts as sentences", err);
        if (!st) st = pal_bytes_append(text, json_string_value(sentence), json_string_length(sentence), err);
    }
    return st;
}

pal_status pal_ruler_read_hotpot(pal_ruler_sources *s, const char *path, pal_error *err) {
    reading r;
    pal_bytes text = { 0 };
    pal_status st = open_questions(&r, &s->questions[1], path, err);
    json_t *entry;
    const json_t *document;
    size_t i, k;
    if (!st && !json_array_size(r.q->file)) st = misfit(&r, "a list of questions", err);
    for (int pass = 0; pass < 2 && !st; pass++) {
        json_array_foreach(r.q->file, i, entry) {
            const json_t *context = json_object_get(entry, "context");
            if (st) break;
            if (!json_array_size(context)) st = misfit(&r, "documents in a list 'context'", err);
            json_array_foreach(context, k, document) {
                if (st || (st = hotpot_document(&r, document, &text, err))) break;
                if (!pass) st = pal_strings_add(&r.q->documents, text.data, text.size, err);
                else
                    st = pal_ids_append(&r.q->near, pal_string_map_find(&r.map, &r.q->documents, text.data, text.size),
                                        err);
            }
            if (pass && !st) {
                json_t *outputs = json_pack("[O?]", json_object_get(entry, "answer"));
                if (!outputs || !pal_json_set(entry, "outputs", outputs))
                    st = pal_fail(err, PAL_E_MEMORY, "out of memory for questions");
                else
                    st = add_question(&r, json_object_get(entry, "question"), outputs, PAL_NO_ID,
                                      json_array_size(context), err);
            }
        }
        if (!pass && !st) st = index_documents(&r, err);
    }
    pal_bytes_free(&text);
    pal_string_map_free(&r.map);
    return st;
}

const char *pal_ruler_lacks(const pal_ruler_sources *s, const pal_ruler_task *task) {
    if (task->haystack == PAL_RULER_ESSAY && !s->words) return "a text";
    if (task->haystack == PAL_RULER_DOCUMENTS && !s->questions[task->set].count)
        return task->set ? "the questions of HotpotQA" : "the questions of SQuAD 2.0";
    return NULL;
}
