/* SPDX-License-Identifier: MIT */
#include "train/checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/directory.h"
#include "base/io.h"
#include "base/log.h"
#include "base/map.h"
#include "format/json.h"
#include "format/run_dir.h"
#include "model/model.h"

enum { PATH = 4096 };

static pal_status join(char out[PATH], const char *folder, const char *name, pal_error *err) {
    return pal_path(out, PATH, err, "%s/%s", folder, name);
}

static pal_status write_trainer(const char *folder, json_t *trainer, pal_error *err) {
    char path[PATH];
    pal_status st;
    pal_writer w;
    if ((st = pal_run_seal(folder, trainer, err))) return st;
    if ((st = join(path, folder, "trainer.json", err)) || (st = pal_writer_open(&w, path, err))) return st;
    if (!pal_json_print(trainer, JSON_INDENT(1) | JSON_REAL_PRECISION(17), w.stream)) {
        const int why = errno;
        pal_writer_drop(&w);
        return pal_fail(err, why == ENOMEM ? PAL_E_MEMORY : PAL_E_IO, "%s: cannot write: %s", path, strerror(why));
    }
    return pal_writer_commit(&w, err);
}

static void drop_old(const char *checkpoints, int keep) {
    size_t count;
    int64_t *steps = pal_run_steps(checkpoints, &count, false);
    for (size_t i = (size_t)keep; steps && i < count; i++) {
        char name[64], path[PATH], gone[PATH];
        snprintf(name, sizeof name, "step-%lld", (long long)steps[i]);
        if (join(path, checkpoints, name, NULL)) continue;
        snprintf(name, sizeof name, ".step-%lld.tmp", (long long)steps[i]);
        /* Renamed first: a half-removed directory must not look like a checkpoint. */
        if (!join(gone, checkpoints, name, NULL) && pal_io_rename(path, gone)) pal_remove_directory(gone);
    }
    pal_free(steps);
}

/* A finished directory takes its place, and that of one that is there: in every moment one of the two is, where the
 * file system can exchange them. */
static pal_status put_in_place(const char *temporary, const char *path, const char *aside, pal_error *err) {
    const bool there = access(path, F_OK) == 0, exchanged = there && pal_io_exchange(temporary, path);
    bool moved = false;
    if (there && !exchanged) {
        pal_remove_directory(aside);
        moved = pal_io_rename(path, aside);
    }
    if (!exchanged && !pal_io_rename(temporary, path)) {
        const pal_status st = pal_fail(err, PAL_E_IO, "%s: cannot rename into place: %s", path, strerror(errno));
        if (moved) pal_io_rename(aside, path);
        return st;
    }
    const pal_status st = pal_sync_directory_of(path, err); /* before the old one is removed */
    if (exchanged) pal_remove_directory(temporary);
    if (moved) pal_remove_directory(aside);
    return st;
}

static pal_status write_whole(const char *run, int64_t step, pal_model *model, const pal_optimiser *optimiser,
                              json_t *trainer, int keep, pal_checkpoint_more more, const pal_comm *comm,
                              pal_error *err) {
    char checkpoints[PATH], temporary[PATH], path[PATH], aside[PATH], name[64];
    pal_status st;
    if ((st = join(checkpoints, run, "checkpoints", err)) || (st = pal_make_directory(checkpoints, err))) return st;
    snprintf(name, sizeof name, ".step-%lld.tmp", (long long)step);
    if ((st = join(temporary, checkpoints, name, err))) return st;
    if ((st = join(path, checkpoints, name + 1, err))) return st;
    *strrchr(path, '.') = '\0';
    snprintf(name, sizeof name, ".step-%lld-old.tmp", (long long)step);
    if ((st = join(aside, checkpoints, name, err))) return st;
    pal_remove_directory(temporary);
    if ((st = pal_model_save(model, temporary, PAL_F32, err))) goto failed;
    char file[PATH];
    if ((st = join(file, temporary, "optimizer.safetensors", err)) || (st = pal_comm_meet(comm, err)) ||
        (st = pal_optimiser_save(optimiser, model, file, err)))
        goto failed;
    if (more.save && (st = more.save(more.self, temporary, true, err))) goto failed;
    if ((st = write_trainer(temporary, trainer, err))) goto failed;
    /* There may be one: unsound, and passed over when resuming, or without the evaluation that has been made now. */
    if ((st = put_in_place(temporary, path, aside, err))) goto failed;
    if (keep > 0) drop_old(checkpoints, keep);
    return PAL_OK;
failed:
    pal_remove_directory(temporary);
    return st;
}

/* The others hand over their moments, once the weights are written, and continue when all is. Writing takes any time.
 */
static pal_status help_to_write(pal_model *model, const pal_optimiser *optimiser, const pal_comm *comm,
                                pal_error *err) {
    const pal_status st = pal_comm_meet(comm, err);
    return st ? st : pal_optimiser_save(optimiser, model, NULL, err);
}

pal_status pal_checkpoint_write(const char *run, int64_t step, pal_model *model, const pal_optimiser *optimiser,
                                json_t *trainer, int keep, pal_checkpoint_more more, const pal_comm *comm,
                                pal_error *err) {
    const pal_status st = pal_comm_is_root(comm)
                              ? write_whole(run, step, model, optimiser, trainer, keep, more, comm, err)
                              : help_to_write(model, optimiser, comm, err);
    return st ? st : pal_comm_meet(comm, err);
}

pal_status pal_checkpoint_write_best(const char *run, const pal_model *model, pal_dtype dtype, pal_checkpoint_more more,
                                     pal_error *err) {
    char checkpoints[PATH], temporary[PATH], path[PATH], aside[PATH];
    pal_status st;
    if ((st = join(checkpoints, run, "checkpoints", err)) || (st = pal_make_directory(checkpoints, err))) return st;
    if ((st = join(temporary, checkpoints, ".best.tmp", err)) || (st = join(path, checkpoints, "best", err))) return st;
    if ((st = join(aside, checkpoints, ".best-old.tmp", err))) return st;
    pal_remove_directory(temporary);
    st = pal_model_save(model, temporary, dtype, err);
    if (!st && more.save) st = more.save(more.self, temporary, false, err);
    if (!st) st = put_in_place(temporary, path, aside, err);
    if (st) pal_remove_directory(temporary);
    return st;
}

pal_status pal_checkpoint_open(const char *run, const pal_optimiser_options *partly, const pal_context *cx,
                               pal_model **model, json_t **trainer, int64_t *step, pal_error *err) {
    char checkpoints[PATH];
    size_t count;
    pal_status st;
    *model = NULL;
    *trainer = NULL;
    if ((st = join(checkpoints, run, "checkpoints", err))) return st;
    int64_t *steps = pal_run_steps(checkpoints, &count, true);
    if (!steps) return pal_fail(err, PAL_E_MEMORY, "out of memory while listing %s", checkpoints);
    pal_error last = { 0 };
    for (size_t i = 0; i < count && !*model; i++) {
        char folder[PATH], name[64];
        snprintf(name, sizeof name, "step-%lld", (long long)steps[i]);
        if ((st = join(folder, checkpoints, name, err))) break;
        if (pal_run_check(folder, trainer, &last) == PAL_OK &&
            pal_model_open_partly(model, folder, partly ? pal_optimiser_trains : NULL, partly, cx, &last) == PAL_OK) {
            *step = steps[i];
            break;
        }
        json_decref(*trainer);
        *trainer = NULL;
        *model = NULL;
        if (last.status == PAL_E_MEMORY) { /* it may be sound */
            st = pal_fail(err, PAL_E_MEMORY, "checkpoint %s cannot be read: %s", name, last.text);
            break;
        }
        pal_warn("checkpoint %s is not usable (%s); trying the one before it", name, last.text);
    }
    if (!st && count && !*model)
        st = pal_fail(err, PAL_E_FORMAT, "%s: none of its %zu checkpoints is usable; the last reason: %s", checkpoints,
                      count, last.text);
    pal_free(steps);
    return st;
}

pal_status pal_checkpoint_finished(const char *run, bool *finished, pal_error *err) {
    char path[PATH];
    size_t count;
    pal_status st = join(path, run, "checkpoints", err);
    int64_t *steps = st ? NULL : pal_run_steps(path, &count, false);
    *finished = false;
    if (!st && !steps) st = pal_fail(err, PAL_E_MEMORY, "out of memory while listing %s", path);
    if (!st && count &&
        !(st = pal_path(path, sizeof path, err, "%s/checkpoints/step-%lld/trainer.json", run, (long long)steps[0]))) {
        bool starved;
        json_t *trainer = pal_json_load(path, 0, NULL, &starved);
        if (starved) st = pal_fail(err, PAL_E_MEMORY, "out of memory while reading %s", path);
        *finished = json_is_true(json_object_get(trainer, "finished"));
        json_decref(trainer);
    }
    pal_free(steps);
    return st;
}

pal_status pal_checkpoint_load_optimiser(const char *run, int64_t step, pal_optimiser *optimiser, pal_model *model,
                                         pal_error *err) {
    char path[PATH];
    const pal_status st = pal_path(path, sizeof path, err, "%s/checkpoints/step-%lld/optimizer.safetensors", run,
                                   (long long)step);
    return st ? st : pal_optimiser_load(optimiser, model, path, err);
}
