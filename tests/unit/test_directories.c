/* SPDX-License-Identifier: MIT */
/* Directories that are locked, made and replaced, and the calls to the disk below them: what may fail and does. */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/directory.h"
#include "base/io.h"
#include "base/lock.h"
#include "base/map.h"
#include "format/json.h"
#include "format/model_writer.h"
#include "format/run_dir.h"
#include "support/files.h"
#include "train/checkpoint.h"

static void whoever_comes_second_is_told_who_was_first(void **state) {
    (void)state;
    char names[64];
    pal_error why = { 0 };
    int first, second;
    OK(pal_lock_directory(&first, test_folder(), false, err));
    assert_int_equal(pal_lock_directory(&second, test_folder(), false, &why), PAL_E_ARGUMENT);
    assert_int_equal(second, -1);
    snprintf(names, sizeof names, "process %ld (", (long)getpid());
    if (!strstr(why.text, names)) fail_msg("%s", why.text);
    pal_unlock_directory(first, test_folder(), false);
    OK(pal_lock_directory(&second, test_folder(), false, err));
    test_write_text(in_folder("used"), "x");
    pal_unlock_directory(second, test_folder(), true); /* what is in it keeps it */
    assert_int_equal(access(test_folder(), F_OK), 0);
    assert_int_equal(pal_lock_directory(&first, in_folder("none"), false, &why), PAL_E_IO);
}

static void who_waits_gets_it_in_the_end(void **state) {
    (void)state;
    int ready[2], fd;
    char byte, folder[TEST_PATH];
    strcpy(folder, in_folder("waited-for"));
    assert_int_equal(mkdir(folder, 0777), 0);
    assert_int_equal(pipe(ready), 0);
    const pid_t child = fork();
    if (child == 0) {
        if (pal_lock_directory(&fd, folder, true, NULL) || write(ready[1], "", 1) != 1) _exit(1);
        usleep(30000);
        _exit(0);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    OK(pal_lock_directory(&fd, folder, true, err));
    pal_unlock_directory(fd, folder, false);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    close(ready[0]);
    close(ready[1]);
}

static void a_new_directory_goes_again_unless_it_is_used(void **state) {
    (void)state;
    bool made;
    int fd;
    pal_error why = { 0 };
    const char *path = in_folder("new/below/it");
    OK(pal_lock_new_directory(&fd, &made, path, err));
    assert_true(made);
    int other;
    assert_int_equal(pal_lock_new_directory(&other, &made, path, &why), PAL_E_ARGUMENT);
    assert_int_equal(pal_lock_new_directory(&other, &made, path, NULL), PAL_E_ARGUMENT);
    assert_false(made);
    pal_unlock_directory(fd, path, true);
    assert_int_not_equal(access(path, F_OK), 0);
    pal_unlock_directory(-1, path, true);
    test_write_text(in_folder("file"), "x");
    assert_int_equal(pal_lock_new_directory(&fd, &made, in_folder("file"), &why), PAL_E_ARGUMENT);
    assert_int_equal(pal_lock_new_directory(&fd, &made, in_folder("file/below"), &why), PAL_E_ARGUMENT);
    assert_int_equal(pal_lock_new_directory(&fd, &made, "/proc/none/here", &why), PAL_E_IO);
    assert_int_equal(pal_make_directory(in_folder("file"), &why), PAL_E_IO);
    assert_non_null(strstr(why.text, "Not a directory"));
    assert_int_equal(pal_make_directory("/proc/none", &why), PAL_E_IO);
    assert_int_equal(symlink("none", in_folder("dangling")), 0);
    assert_int_equal(pal_make_directory(in_folder("dangling"), &why), PAL_E_IO);
    pal_make_parents("");
    pal_remove_directory(in_folder("none"));
}

/* A run's directory may come from a stranger: what a link in it leads to is not ours to empty. */
static void what_a_link_leads_to_stays(void **state) {
    (void)state;
    size_t count;
    assert_int_equal(mkdir(in_folder("precious"), 0777), 0);
    test_write_text(in_folder("precious/file"), "x");
    assert_int_equal(mkdir(in_folder("steps"), 0777), 0);
    const char *const links[] = { "steps/.step-1.tmp", "steps/.best-old.tmp", "steps/.mine.tmp" };
    for (size_t i = 0; i < PAL_COUNT(links); i++) assert_int_equal(symlink("../precious", in_folder(links[i])), 0);
    assert_int_equal(mkdir(in_folder("steps/.step-2.tmp"), 0777), 0);
    test_write_text(in_folder("steps/.step-2.tmp/half"), "x");
    pal_free(pal_run_steps(in_folder("steps"), &count, true));
    assert_int_equal(access(in_folder("precious/file"), F_OK), 0);
    assert_int_not_equal(access(in_folder("steps/.step-2.tmp"), F_OK), 0);
    assert_int_not_equal(access(in_folder(links[0]), F_OK), 0);
    assert_int_not_equal(access(in_folder(links[1]), F_OK), 0);
    assert_int_equal(access(in_folder(links[2]), F_OK), 0); /* training never makes such a name */
    assert_int_equal(unlink(in_folder(links[2])), 0);
}

/* A path of 5000 bytes is refused wherever one is made, and nothing happens. */
static void long_paths_are_refused(void **state) {
    (void)state;
    static char path[5001], folder[4090];
    pal_error why = { 0 };
    memset(path, 'x', 5000);
    memset(folder, 'x', sizeof folder - 1); /* just short enough, until a name follows */
    bool finished;
    int64_t step;
    pal_model *model;
    json_t *trainer;
    const char *const paths[] = { path, folder };
    for (size_t i = 0; i < PAL_COUNT(paths); i++) {
        assert_int_equal(pal_checkpoint_open(paths[i], NULL, NULL, &model, &trainer, &step, &why), PAL_E_ARGUMENT);
        assert_non_null(strstr(why.text, "too long"));
        assert_int_equal(pal_checkpoint_finished(paths[i], &finished, &why), PAL_E_ARGUMENT);
        assert_int_equal(pal_checkpoint_load_optimiser(paths[i], 1, NULL, NULL, &why), PAL_E_ARGUMENT);
        assert_int_equal(pal_checkpoint_write_best(paths[i], NULL, PAL_F32, (pal_checkpoint_more){ 0 }, &why),
                         PAL_E_ARGUMENT);
        assert_int_equal(
            pal_checkpoint_write(paths[i], 1, NULL, NULL, NULL, 1, (pal_checkpoint_more){ 0 }, &pal_comm_alone, &why),
            PAL_E_ARGUMENT);
        assert_false(pal_directory_has(paths[i], "a name"));
    }
    pal_make_parents(path);
    assert_int_equal(pal_target_is_free(path, true, &why), PAL_E_ARGUMENT);
    assert_int_equal(pal_target_is_free("", true, &why), PAL_E_ARGUMENT);
    assert_non_null(strstr(why.text, "expected a path of 1 to"));
    path[4500] = '/';
    assert_int_equal(pal_sync_directory_of(path, &why), PAL_E_ARGUMENT);
    OK(pal_sync_directory_of("here", err));
    OK(pal_sync_directory_of("/here", err));
    assert_int_equal(pal_sync_directory_of("/nowhere/here", &why), PAL_E_IO);
}

/* ---- every call, let through, interrupted, broken and with nothing to work on */

static int file = -1;
static bool try_open(void) {
    const int fd = pal_io_open(in_folder("io/opened"), O_WRONLY | O_CREAT);
    if (fd >= 0) close(fd);
    return fd >= 0;
}
static bool try_write(void) { return pal_io_write(file, "abc", 3); }
static bool try_write_at(void) { return pal_io_write_at(file, "abc", 3, 5); }
static bool try_reserve(void) { return pal_io_reserve(file, 100); }
static bool try_cut(void) { return pal_io_cut(file, 2); }
static bool try_sync(void) { return pal_io_sync(file); }
static bool try_rename(void) { return pal_io_rename(in_folder("io/a"), in_folder("io/renamed")); }
static bool try_exchange(void) { return pal_io_exchange(in_folder("io/a"), in_folder("io/b")); }
static bool try_link(void) { return pal_io_link(in_folder("io/a"), in_folder("io/linked")); }
static bool try_mkdir(void) { return pal_io_mkdir(in_folder("io/new")); }
static bool try_unlink(void) { return pal_io_unlink(in_folder("io/a")); }
static bool try_rmdir(void) { return pal_io_rmdir(in_folder("io/empty")); }

static int answer, asked;
static int watch(const pal_io_call *call) {
    (void)call;
    return asked++ ? 0 : answer;
}

static void calls_are_repeated_when_interrupted(void **state) {
    (void)state;
    static bool (*const calls[])(void) = { try_open,   try_write,    try_write_at, try_reserve, try_cut,    try_sync,
                                           try_rename, try_exchange, try_link,     try_mkdir,   try_unlink, try_rmdir };
    for (size_t i = 0; i < PAL_COUNT(calls); i++) {
        static const int answers[] = { 0, EINTR, PAL_IO_SHORT, EIO };
        for (size_t k = 0; k <= PAL_COUNT(answers); k++) {
            const bool there = k < PAL_COUNT(answers); /* else there is nothing to work on */
            test_remove(in_folder("io"));
            if (there) {
                assert_int_equal(mkdir(in_folder("io"), 0777), 0);
                assert_int_equal(mkdir(in_folder("io/empty"), 0777), 0);
                test_write_text(in_folder("io/a"), "a");
                test_write_text(in_folder("io/b"), "b");
                file = open(in_folder("io/file"), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
                assert_true(file >= 0);
                answer = answers[k], asked = 0;
                pal_io_watch = watch;
            } else file = -1;
            errno = 0;
            const bool done = calls[i](), expected = there && answers[k] != EIO;
            const int code = errno;
            pal_io_watch = NULL;
            if (done != expected || (there && !done && code != EIO))
                fail_msg("call %zu, answer %zu: %s", i, k, strerror(code));
            if (there && done && answers[k] != 0) assert_true(asked > 1 || answers[k] == PAL_IO_SHORT);
            if (file >= 0) close(file);
        }
    }
    /* A file system that cannot reserve is none that fails. */
    static const int without[] = { EOPNOTSUPP, ENOSYS };
    for (size_t i = 0; i < 2; i++) {
        answer = without[i], asked = 0;
        pal_io_watch = watch;
        assert_true(pal_io_reserve(-1, 5));
        pal_io_watch = NULL;
    }
    assert_true(pal_io_reserve(-1, 0));
}

static void a_stream_that_cannot_seek_says_so(void **state) {
    (void)state;
    int ends[2];
    pal_io_file *kept;
    assert_int_equal(pipe(ends), 0);
    FILE *stream = pal_io_stream(ends[1], &kept);
    assert_int_not_equal(fseek(stream, 3, SEEK_SET), 0);
    fclose(stream);
    close(ends[0]);
    stream = pal_io_stream(open("/dev/full", O_WRONLY | O_CLOEXEC), &kept);
    setvbuf(stream, NULL, _IONBF, 0);
    assert_int_equal(fputs("abc", stream), EOF);
    assert_int_equal(fputs("abc", stream), EOF);
    assert_int_equal(kept->why, ENOSPC);
    assert_false(pal_json_print(json_true(), JSON_ENCODE_ANY, stream));
    fclose(stream);
}

/* ---- the place for a model */

static void only_an_empty_directory_is_replaced(void **state) {
    (void)state;
    char back[TEST_PATH], empty[TEST_PATH];
    pal_error why = { 0 };
    strcpy(empty, in_folder("empty"));
    assert_int_equal(mkdir(empty, 0777), 0);
    OK(pal_target_is_free(empty, true, err));
    OK(pal_target_is_free(in_folder("free"), true, err));
    assert_int_equal(pal_target_is_free(empty, false, &why), PAL_E_ARGUMENT);
    assert_int_equal(symlink(empty, in_folder("to-empty")), 0);
    OK(pal_target_is_free(in_folder("to-empty"), true, err));
    assert_int_equal(pal_target_is_free(in_folder("to-empty"), false, &why), PAL_E_ARGUMENT);
    assert_int_equal(symlink("nowhere", in_folder("to-nothing")), 0);
    assert_int_equal(pal_target_is_free(in_folder("to-nothing"), true, &why), PAL_E_ARGUMENT);
    assert_int_equal(pal_target_is_free(test_folder(), true, &why), PAL_E_ARGUMENT);
    assert_non_null(strstr(why.text, "is not empty"));
    test_write_text(in_folder("file"), "x");
    assert_int_equal(pal_target_is_free(in_folder("file/below"), true, &why), PAL_E_ARGUMENT);
    assert_non_null(strstr(why.text, "cannot look"));
    assert_non_null(getcwd(back, sizeof back));
    assert_int_equal(chdir(empty), 0);
    assert_int_equal(pal_target_is_free(".", true, &why), PAL_E_ARGUMENT);
    assert_non_null(strstr(why.text, "is the current directory"));
    assert_int_equal(chdir(back), 0);
}

static void tensors_are_written_as_announced(void **state) {
    (void)state;
    const float x[4] = { 1, 2, 3, 4 };
    const pal_tensor tensors[] = {
        { .name = "f", .dtype = PAL_F32, .rank = 1, .shape = { 4 }, .count = 4, .data = x },
        { .name = "i", .dtype = PAL_I32, .rank = 1, .shape = { 4 }, .count = 4, .data = x }
    };
    const pal_tensor short_one = { .name = "s", .dtype = PAL_F32, .rank = 1, .shape = { 2 }, .count = 2, .data = x };
    const pal_source source = { 0 };
    pal_model_writer *w;
    pal_error why = { 0 };
    OK(pal_model_writer_open(&w, in_folder("written//"), tensors, 2, err));
    assert_int_equal(pal_model_writer_put(w, 5, x, 4, &why), PAL_E_ARGUMENT);
    assert_non_null(strstr(why.text, "a tensor that does not exist"));
    assert_int_equal(pal_model_writer_put(w, 0, x, 17, &why), PAL_E_ARGUMENT);
    assert_int_equal(pal_model_writer_put_f32(w, 5, x, 4, &why), PAL_E_ARGUMENT);
    assert_int_equal(pal_model_writer_put_f32(w, 1, x, 4, &why), PAL_E_ARGUMENT);
    assert_non_null(strstr(why.text, "cannot be made from f32"));
    assert_int_equal(pal_model_writer_copy(w, 0, &source, &short_one, &why), PAL_E_ARGUMENT);
    assert_int_equal(pal_model_writer_copy(w, 7, &source, &short_one, &why), PAL_E_ARGUMENT);
    assert_non_null(strstr(why.text, "as many elements as announced"));
    pal_model_writer_drop(w);
    assert_int_not_equal(access(in_folder("written"), F_OK), 0);
    const pal_tensor nameless = { .dtype = PAL_F32 }, foreign = { .name = "\xff", .dtype = PAL_F32, .count = 1 };
    assert_int_equal(pal_model_writer_open(&w, in_folder("written"), &nameless, 1, &why), PAL_E_ARGUMENT);
    assert_int_equal(pal_model_writer_open(&w, in_folder("written"), &foreign, 1, &why), PAL_E_ARGUMENT);
    assert_non_null(strstr(why.text, "is not UTF-8"));
    assert_int_equal(pal_model_writer_open(&w, "/proc/none", tensors, 2, &why), PAL_E_IO);
    OK(pal_model_writer_open(&w, in_folder("written"), NULL, 0, err)); /* a model of nothing */
    json_t *config = json_object();
    OK(pal_model_writer_commit(w, config, err));
    json_decref(config);
    assert_int_equal(access(in_folder("written/model.safetensors"), F_OK), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whoever_comes_second_is_told_who_was_first),
        cmocka_unit_test(who_waits_gets_it_in_the_end),
        cmocka_unit_test(a_new_directory_goes_again_unless_it_is_used),
        cmocka_unit_test(what_a_link_leads_to_stays),
        cmocka_unit_test(long_paths_are_refused),
        cmocka_unit_test(calls_are_repeated_when_interrupted),
        cmocka_unit_test(a_stream_that_cannot_seek_says_so),
        cmocka_unit_test(only_an_empty_directory_is_replaced),
        cmocka_unit_test(tensors_are_written_as_announced),
    };
    return cmocka_run_group_tests(tests, test_folder_make, test_folder_remove);
}
