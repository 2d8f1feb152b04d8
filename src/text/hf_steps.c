/* SPDX-License-Identifier: MIT */
/* Normaliser, pre-tokenizer and post-processor of a tokenizer.json. What is not known is refused by its name:
 * a tokenizer that does nearly the same is worse than none. */
#include "text/hf_json.h"
#include "text/pattern.h"

const char pal_gpt2_pattern[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

pal_status pal_hf_unsupported(const char *name, const char *what, const json_t *node, pal_error *err) {
    const pal_slice type = pal_json_slice(json_object_get(node, "type"));
    if (!type.data) return pal_fail(err, PAL_E_FORMAT, "%s: the %s has no type", name, what);
    return pal_fail(err, PAL_E_UNSUPPORTED, "%s: the %s '%s' is not supported", name, what, pal_show(type).text);
}

static pal_status too_many(const char *name, const char *what, pal_error *err) {
    return pal_fail(err, PAL_E_UNSUPPORTED, "%s: more than %d %s steps", name, PAL_STEPS_MAX, what);
}

static pal_status copy_string(pal_bytes *to, const char *name, const json_t *string, const char *what, pal_error *err) {
    if (!json_is_string(string)) return pal_fail(err, PAL_E_FORMAT, "%s: %s is not a string", name, what);
    return pal_bytes_append(to, json_string_value(string), json_string_length(string), err);
}

/* A Sequence is a list under one of two names; NULL: not a sequence. */
static const json_t *sequence_of(const json_t *node, const char *plural) {
    return strcmp(pal_json_type(node), "Sequence") == 0 ? json_object_get(node, plural) : NULL;
}

static pal_status normalizer(pal_tokenizer *tok, const char *name, const json_t *node, int depth, pal_error *err) {
    static const struct {
        const char *type;
        pal_normal_kind kind;
    } kinds[] = { { "NFC", PAL_NFC },   { "NFD", PAL_NFD },         { "NFKC", PAL_NFKC },
                  { "NFKD", PAL_NFKD }, { "Prepend", PAL_PREPEND }, { "Replace", PAL_REPLACE } };
    const json_t *list = sequence_of(node, "normalizers");
    pal_status st;
    if (!node || json_is_null(node)) return PAL_OK;
    if (depth > PAL_NESTING_MAX)
        return pal_fail(err, PAL_E_FORMAT, "%s: sequences within sequences, more than %d deep", name, PAL_NESTING_MAX);
    if (list) {
        for (size_t i = 0; i < json_array_size(list); i++)
            if ((st = normalizer(tok, name, json_array_get(list, i), depth + 1, err))) return st;
        return PAL_OK;
    }
    const char *type = pal_json_type(node);
    size_t k = 0;
    while (k < sizeof kinds / sizeof kinds[0] && strcmp(type, kinds[k].type) != 0) k++;
    if (k == sizeof kinds / sizeof kinds[0]) return pal_hf_unsupported(name, "normalizer", node, err);
    if (tok->normal_count == PAL_STEPS_MAX) return too_many(name, "normalizer", err);
    pal_normal_step *step = &tok->normal[tok->normal_count++];
    step->kind = kinds[k].kind;
    if (step->kind == PAL_PREPEND)
        return copy_string(&step->to, name, json_object_get(node, "prepend"), "what is prepended", err);
    if (step->kind == PAL_REPLACE) {
        const json_t *from = json_object_get(json_object_get(node, "pattern"), "String");
        if (!json_is_string(from))
            return pal_fail(err, PAL_E_UNSUPPORTED,
                            "%s: the normalizer Replace with a regular expression is not supported", name);
        if (json_string_length(from) == 0)
            return pal_fail(err, PAL_E_FORMAT, "%s: the normalizer Replace replaces nothing", name);
        if ((st = copy_string(&step->from, name, from, "what is replaced", err))) return st;
        return copy_string(&step->to, name, json_object_get(node, "content"), "the replacement", err);
    }
    return PAL_OK;
}

pal_status pal_hf_normalizer(pal_tokenizer *tok, const char *name, const json_t *node, pal_error *err) {
    return normalizer(tok, name, node, 0, err);
}

pal_split_step *pal_split_add(pal_tokenizer *tok, pal_split_kind kind) {
    if (tok->split_count == PAL_STEPS_MAX) return NULL;
    pal_split_step *step = &tok->split[tok->split_count++];
    step->kind = kind;
    return step;
}

/* All patterns of a file together. Those in use have some hundred bytes; compiled, so many can take 40 MB. */
enum { PATTERNS_MAX = 4 << 10 };

pal_status pal_split_pattern_add(pal_tokenizer *tok, const char *name, pal_slice source, pal_split_behaviour behaviour,
                                 bool invert, pal_error *err) {
    const size_t gpt2 = strlen(pal_gpt2_pattern);
    const bool by_hand = behaviour == PAL_ISOLATED && source.size == gpt2 &&
                         memcmp(source.data, pal_gpt2_pattern, gpt2) == 0;
    pal_split_step *step = pal_split_add(tok, by_hand ? PAL_SPLIT_GPT2 : PAL_SPLIT_PATTERN);
    pal_status st;
    if (!step) return too_many(name, "pre-tokenizer", err);
    if (by_hand) return PAL_OK;
    step->behaviour = behaviour;
    step->invert = invert;
    size_t together = source.size;
    for (size_t i = 0; i < tok->split_count; i++) together += tok->split[i].pattern ? tok->split[i].literal.size : 0;
    if (together > PATTERNS_MAX)
        return pal_fail(err, PAL_E_UNSUPPORTED, "%s: its patterns have %zu bytes or more; at most %d are accepted",
                        name, together, PATTERNS_MAX);
    if ((st = pal_bytes_append(&step->literal, source.data, source.size, err))) return st;
    return pal_pattern_new(&step->pattern, name, source, err);
}

static pal_status split(pal_tokenizer *tok, const char *name, const json_t *node, pal_error *err) {
    static const char *const behaviours[] = { [PAL_ISOLATED] = "Isolated",
                                              [PAL_REMOVED] = "Removed",
                                              [PAL_WITH_PREVIOUS] = "MergedWithPrevious",
                                              [PAL_WITH_NEXT] = "MergedWithNext",
                                              [PAL_CONTIGUOUS] = "Contiguous" };
    const char *wanted = json_string_value(json_object_get(node, "behavior"));
    const json_t *pattern = json_object_get(node, "pattern"), *regex = json_object_get(pattern, "Regex"),
                 *literal = json_object_get(pattern, "String");
    const bool invert = json_is_true(json_object_get(node, "invert"));
    int behaviour = 0;
    while (behaviour < 5 && (!wanted || strcmp(wanted, behaviours[behaviour]) != 0)) behaviour++;
    if (behaviour == 5)
        return pal_fail(err, PAL_E_FORMAT, "%s: the pre-tokenizer Split has no behavior that is known", name);
    if (json_is_string(regex))
        return pal_split_pattern_add(tok, name, pal_json_slice(regex), (pal_split_behaviour)behaviour, invert, err);
    if (!json_is_string(literal) || json_string_length(literal) == 0)
        return pal_fail(err, PAL_E_FORMAT, "%s: the pre-tokenizer Split has no pattern", name);
    pal_split_step *step = pal_split_add(tok, PAL_SPLIT_PATTERN);
    if (!step) return too_many(name, "pre-tokenizer", err);
    step->behaviour = (pal_split_behaviour)behaviour;
    step->invert = invert;
    return copy_string(&step->literal, name, literal, "a pattern", err);
}

static pal_status byte_level(pal_tokenizer *tok, const char *name, const json_t *node, pal_error *err) {
    const json_t *prefix = json_object_get(node, "add_prefix_space"), *regex = json_object_get(node, "use_regex");
    tok->byte_level = true;
    if (!prefix || json_is_true(prefix)) /* the package's default */
        if (!pal_split_add(tok, PAL_SPLIT_BLANK_PREFIX)) return too_many(name, "pre-tokenizer", err);
    if (!regex || json_is_true(regex))
        if (!pal_split_add(tok, PAL_SPLIT_GPT2)) return too_many(name, "pre-tokenizer", err);
    return PAL_OK;
}

static pal_status metaspace(pal_tokenizer *tok, const char *name, const json_t *node, pal_error *err) {
    const json_t *sign = json_object_get(node, "replacement"), *scheme = json_object_get(node, "prepend_scheme");
    const json_t *old = json_object_get(node, "add_prefix_space"), *cut = json_object_get(node, "split");
    const char *when = json_string_value(scheme);
    pal_split_step *step = pal_split_add(tok, PAL_SPLIT_METASPACE);
    if (!step) return too_many(name, "pre-tokenizer", err);
    if (when)
        step->prefix = strcmp(when, "never") == 0   ? PAL_PREFIX_NEVER
                       : strcmp(when, "first") == 0 ? PAL_PREFIX_FIRST
                                                    : PAL_PREFIX_ALWAYS;
    else step->prefix = json_is_false(old) ? PAL_PREFIX_NEVER : PAL_PREFIX_ALWAYS;
    step->each = !json_is_false(cut);
    if (sign && json_string_length(sign) == 0)
        return pal_fail(err, PAL_E_FORMAT, "%s: the pre-tokenizer Metaspace has an empty replacement", name);
    if (!sign) return pal_bytes_append(&step->literal, "\xE2\x96\x81", 3, err);
    return copy_string(&step->literal, name, sign, "the sign for a blank", err);
}

static pal_status pre_tokenizer(pal_tokenizer *tok, const char *name, const json_t *node, int depth, pal_error *err) {
    const json_t *list = sequence_of(node, "pretokenizers");
    const char *type = pal_json_type(node);
    pal_status st;
    if (!node || json_is_null(node)) return PAL_OK;
    if (depth > PAL_NESTING_MAX)
        return pal_fail(err, PAL_E_FORMAT, "%s: sequences within sequences, more than %d deep", name, PAL_NESTING_MAX);
    if (list) {
        for (size_t i = 0; i < json_array_size(list); i++)
            if ((st = pre_tokenizer(tok, name, json_array_get(list, i), depth + 1, err))) return st;
        return PAL_OK;
    }
    if (tok->byte_level)
        return pal_fail(err, PAL_E_UNSUPPORTED, "%s: a pre-tokenizer after ByteLevel is not supported", name);
    if (strcmp(type, "ByteLevel") == 0) return byte_level(tok, name, node, err);
    if (strcmp(type, "Split") == 0) return split(tok, name, node, err);
    if (strcmp(type, "Metaspace") == 0) return metaspace(tok, name, node, err);
    if (strcmp(type, "Digits") == 0) {
        pal_split_step *step = pal_split_add(tok, PAL_SPLIT_DIGITS);
        if (!step) return too_many(name, "pre-tokenizer", err);
        step->each = json_is_true(json_object_get(node, "individual_digits"));
        return PAL_OK;
    }
    return pal_hf_unsupported(name, "pre-tokenizer", node, err);
}

pal_status pal_hf_pre_tokenizer(pal_tokenizer *tok, const char *name, const json_t *node, pal_error *err) {
    return pre_tokenizer(tok, name, node, 0, err);
}

/* One more id around a text. */
static pal_status template_id(const char *name, uint32_t id, pal_ids *to, pal_error *err) {
    enum { MOST = 1024 };
    if (to->count == MOST)
        return pal_fail(err, PAL_E_UNSUPPORTED, "%s: the post-processor puts more than %d ids on one side of a text",
                        name, MOST);
    return pal_ids_append(to, id, err);
}

static pal_status template_ids(pal_tokenizer *tok, const char *name, const json_t *token, pal_ids *to, pal_error *err) {
    const json_t *ids = json_object_get(token, "ids");
    pal_status st;
    for (size_t i = 0; i < json_array_size(ids); i++) {
        const json_int_t id = json_integer_value(json_array_get(ids, i));
        if (!pal_is_token(tok, id))
            return pal_fail(err, PAL_E_FORMAT, "%s: the template has an id that is not in the vocabulary", name);
        if ((st = template_id(name, (uint32_t)id, to, err))) return st;
    }
    return json_array_size(ids) ? PAL_OK
                                : pal_fail(err, PAL_E_FORMAT, "%s: the template has a token without ids", name);
}

/* ["<s>", 0] */
static pal_status pair_id(pal_tokenizer *tok, const char *name, const json_t *pair, pal_ids *to, pal_error *err) {
    const json_t *id = json_array_get(pair, 1);
    if (!json_is_integer(id) || !pal_is_token(tok, json_integer_value(id)))
        return pal_fail(err, PAL_E_FORMAT, "%s: the post-processor has an id that is not in the vocabulary", name);
    return template_id(name, (uint32_t)json_integer_value(id), to, err);
}

pal_status pal_hf_post_processor(pal_tokenizer *tok, const char *name, const json_t *node, pal_error *err) {
    const json_t *list = sequence_of(node, "processors");
    const char *type = pal_json_type(node);
    pal_status st;
    if (!node || json_is_null(node) || strcmp(type, "ByteLevel") == 0) return PAL_OK;
    if (list) {
        for (size_t i = 0; i < json_array_size(list); i++) {
            const json_t *item = json_array_get(list, i);
            if (sequence_of(item, "processors"))
                return pal_fail(err, PAL_E_UNSUPPORTED, "%s: post-processors nested twice are not supported", name);
            if ((st = pal_hf_post_processor(tok, name, item, err))) return st;
        }
        return PAL_OK;
    }
    if (strcmp(type, "RobertaProcessing") == 0 || strcmp(type, "BertProcessing") == 0) {
        if ((st = pair_id(tok, name, json_object_get(node, "cls"), &tok->prefix, err))) return st;
        return pair_id(tok, name, json_object_get(node, "sep"), &tok->suffix, err);
    }
    if (strcmp(type, "TemplateProcessing") != 0) return pal_hf_unsupported(name, "post-processor", node, err);
    const json_t *single = json_object_get(node, "single"), *known = json_object_get(node, "special_tokens");
    bool after = false;
    for (size_t i = 0; i < json_array_size(single); i++) {
        const json_t *item = json_array_get(single, i), *special = json_object_get(item, "SpecialToken");
        const char *id = json_string_value(json_object_get(special, "id"));
        if (json_object_get(item, "Sequence")) {
            if (after) return pal_fail(err, PAL_E_UNSUPPORTED, "%s: the template has the text twice", name);
            after = true;
        } else if (!id) {
            return pal_fail(err, PAL_E_FORMAT, "%s: the template has a piece that is neither text nor token", name);
        } else if ((st = template_ids(tok, name, json_object_get(known, id), after ? &tok->suffix : &tok->prefix,
                                      err))) {
            return st;
        }
    }
    return PAL_OK;
}
