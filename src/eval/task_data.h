/* SPDX-License-Identifier: MIT */
/* The documents of a task, found below a directory by the names that its description lists. */
#ifndef PAL_EVAL_TASK_DATA_H
#define PAL_EVAL_TASK_DATA_H

#include "eval/tasks/task.h"

typedef struct pal_task_data pal_task_data;
/* directory: where the files of all tasks are; or the one file itself. */
pal_status pal_task_data_open(pal_task_data **out, const pal_eval_task *task, const char *directory, pal_error *err);
void pal_task_data_close(pal_task_data *data);
size_t pal_task_data_count(const pal_task_data *data);
const char *pal_task_data_path(const pal_task_data *data);
/* Document i as requests, and its row (json_decref) when row is not NULL. An error names the file and the line. */
pal_status pal_task_data_read(const pal_task_data *data, size_t i, pal_task_doc *doc, json_t **row, pal_error *err);

#endif
