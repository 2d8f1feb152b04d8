/* SPDX-License-Identifier: MIT */
/* The rows of a data set as objects with fields: JSON lines, or a CSV table whose first line names the fields. */
#ifndef PAL_EVAL_RECORDS_H
#define PAL_EVAL_RECORDS_H

#include <jansson.h>

#include "palimpsa/tokenizer.h"

typedef struct pal_records pal_records;
/* CSV when the name ends in .csv, else JSON lines. Only the places of the rows are kept. */
pal_status pal_records_open(pal_records **out, const char *path, pal_error *err);
void pal_records_close(pal_records *records);
size_t pal_records_count(const pal_records *records);
/* Row i as an object, for json_decref. A cell of a table is a text, or what Python or JSON wrote there for a list. */
pal_status pal_records_read(const pal_records *records, size_t i, json_t **row, pal_error *err);

/* Where a row stands, for sentences: "FILE: line 12". */
void pal_records_place(const pal_records *records, size_t i, char *text, size_t size);

#endif
