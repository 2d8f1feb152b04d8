/* SPDX-License-Identifier: MIT */
/* LongBench v2: one of four letters, by difficulty and length. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "eval/longbench.h"

const char *const pal_longbench2_columns[PAL_LONGBENCH2_COLUMNS] = { "Overall", "Easy",   "Hard",
                                                                     "Short",   "Medium", "Long" };

/* The letter after the phrase, in brackets or not; asterisks do not count. */
static char find_letter(pal_slice text, const char *phrase, bool brackets) {
    for (size_t at = 0; at < text.size; at++) {
        size_t i = at;
        const char *p = phrase;
        if (text.data[at] == '*') continue; /* nothing starts there that does not start after it */
        for (; i < text.size && *p; i++) {
            if (text.data[i] == '*') continue;
            if (text.data[i] != (unsigned char)*p) break;
            p++;
        }
        while (i < text.size && text.data[i] == '*') i++;
        if (*p || i == text.size || text.data[i] < 'A' || text.data[i] > 'D') continue;
        const char letter = (char)text.data[i++];
        while (i < text.size && text.data[i] == '*') i++;
        if (!brackets || (i < text.size && text.data[i] == ')')) return letter;
    }
    return 0;
}

char pal_longbench2_answer(pal_slice response) {
    const char letter = find_letter(response, "The correct answer is (", true);
    return letter ? letter : find_letter(response, "The correct answer is ", false);
}

pal_status pal_longbench2_count(pal_longbench2_sum *sum, const json_t *row, char answer, bool *right, pal_error *err) {
    const char *gold = json_string_value(json_object_get(row, "answer")),
               *difficulty = json_string_value(json_object_get(row, "difficulty")),
               *length = json_string_value(json_object_get(row, "length"));
    if (!gold || !difficulty || !length)
        return pal_fail(err, PAL_E_FORMAT, "there is no text in field '%s'",
                        !gold         ? "answer"
                        : !difficulty ? "difficulty"
                                      : "length");
    if (strlen(gold) != 1 || gold[0] < 'A' || gold[0] > 'D')
        return pal_fail(err, PAL_E_FORMAT, "field 'answer': expected A, B, C or D, found '%s'", gold);
    const int column[3] = { 0, strcmp(difficulty, "easy") == 0 ? 1 : 2,
                            strcmp(length, "short") == 0    ? 3
                            : strcmp(length, "medium") == 0 ? 4
                                                            : 5 };
    *right = answer == gold[0];
    for (int i = 0; i < 3; i++) {
        sum->count[column[i]]++;
        sum->right[column[i]] += *right;
        sum->none[column[i]] += answer == 0;
    }
    return PAL_OK;
}

double pal_longbench2_score(const pal_longbench2_sum *sum, int column, bool compensated) {
    char text[32];
    if (!sum->count[column]) return NAN;
    const double points = (double)sum->right[column] + (compensated ? 0.25 * (double)sum->none[column] : 0);
    snprintf(text, sizeof text, "%.1f", 100 * points / (double)sum->count[column]);
    return strtod(text, NULL);
}
