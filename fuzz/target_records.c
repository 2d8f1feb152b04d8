/* SPDX-License-Identifier: MIT */
/* Rows of a data set: a CSV table, or JSON lines when the first byte is odd. */
#include <jansson.h>

#include "eval/records.h"
#include "input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    pal_records *records;
    pal_error err;
    if (!size) return 0;
    if (pal_records_open(&records, fuzz_file(data[0] & 1 ? "rows.jsonl" : "rows.csv", data + 1, size - 1), &err))
        return 0;
    for (size_t i = 0; i < pal_records_count(records); i++) {
        json_t *row = NULL;
        if (pal_records_read(records, i, &row, &err) == PAL_OK) FUZZ_CHECK(json_is_object(row));
        json_decref(row);
    }
    pal_records_close(records);
    return 0;
}
