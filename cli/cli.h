/* SPDX-License-Identifier: MIT */
/* What commands share: the options parser, errors, and the exit codes (0 done, 1 failed at run time, 2 wrong usage or
 * unreadable input, 3 interrupted by a signal). A command is one file cmd_NAME.c and one row in main.c's table. */
#ifndef PAL_CLI_H
#define PAL_CLI_H

#include <stdbool.h>
#include <stddef.h>

#include "format/options.h"
#include "palimpsa/palimpsa.h"

enum { CLI_OK = 0, CLI_FAILED = 1, CLI_USAGE = 2, CLI_INTERRUPTED = 3 };

#define OPT_FLAG     PAL_OPTION_FLAG
#define OPT_INT      PAL_OPTION_INT
#define OPT_LONG     PAL_OPTION_LONG
#define OPT_FLOAT    PAL_OPTION_FLOAT
#define OPT_TEXT     PAL_OPTION_TEXT
#define OPT_LIST     PAL_OPTION_LIST
#define CLI_LIST_MAX PAL_OPTION_MOST
typedef pal_option_list cli_list;
typedef pal_option cli_option;

typedef struct cli_command {
    const char *name;
    const char *summary;
    int (*run)(int argc, char **argv); /* argv[0] is the command's name */
    bool by_ranks; /* under mpirun its processes work together; those of other commands know nothing of each other */
} cli_command;

/* Options every command has. */
typedef struct cli_common {
    int threads;
    const char *cpu;
    bool json;
    const char *device;
} cli_common;
#define CLI_COMMON_OPTIONS(common)                                                                \
    { "threads", OPT_INT, &(common).threads, "N",                                                 \
      "number of threads (default: PALIMPSA_THREADS, else all processors)" },                     \
    {                                                                                             \
        "cpu", OPT_TEXT, &(common).cpu, "LEVEL",                                                  \
            "instruction level: ref, avx2, avx512 or neon (default: PALIMPSA_CPU, else the best)" \
    }

/* Of commands that can compute elsewhere than on the CPU. */
#define CLI_DEVICE_OPTION(common)                                                                      \
    {                                                                                                  \
        "device", OPT_TEXT, &(common).device, "NAME",                                                  \
            "where to compute: cpu, opencl (the first GPU) or opencl:N, as 'palimpsa devices' counts " \
            "(default: PALIMPSA_DEVICE, else cpu)"                                                     \
    }

/* Parses argv: options into their values, the rest into positional (at most max_positional). Returns CLI_OK, or prints
 * one sentence and returns CLI_USAGE; --help prints the help and returns -1, after which the command returns CLI_OK. */
typedef struct cli_usage {
    const char *synopsis; /* "selftest [DIR] [options]" */
    const char *about;    /* one line, then paragraphs; lines that begin with a space are kept as they are */
    const char *examples; /* lines, each indented by two spaces; the first three are shown at the top */
    const cli_option *options;
    size_t option_count;
} cli_usage;
int cli_parse(const cli_usage *usage, int argc, char **argv, const char **positional, int max_positional,
              int *positional_count);

/* The same options from a JSON object in a file (keys as the names, with _ or -) and as one, without transient ones.
 * Texts read from a file live until the process ends. */
int cli_read_config(const cli_usage *usage, const char *path);
json_t *cli_make_config(const cli_usage *usage);
int cli_print_json(json_t *value, size_t flags); /* with a line's end, and releases it */
/* configs/NAME.json, as the build put them into the program; the last one has no name. */
typedef struct cli_recipe {
    const char *name, *text;
} cli_recipe;
extern const cli_recipe cli_recipes[];
/* The path from which --recipe NAME is read. Returns an exit code. */
int cli_find_recipe(char path[4096], const char *name);
/* A path under which `text` can be read until the process ends; what: for the sentence when that fails. */
int cli_memory_file(char path[4096], const char *what, const char *text);
/* Prints "palimpsa: sentence" on stderr and returns code. */
int cli_error(int code, const char *format, ...) PAL_PRINTF(2, 3);
/* The exit code that fits a library status; cli_fail also prints the sentence. */
int cli_code_of(pal_status status);
int cli_fail(const pal_error *err);
int cli_plain_dtype(pal_dtype *out, const char *option, const char *name); /* f32, bf16 or f16 */
/* A path as a shell reads it: in quotes, in `out`, where it holds anything unusual. */
const char *cli_shell_word(const char *path, char *out, size_t size);
int cli_path(char *out, size_t size, const char *format, ...) PAL_PRINTF(3, 4); /* refused if it does not fit */
/* The same after writing: a failed write is not wrong usage. */
int cli_fail_writing(const pal_error *err);
#ifdef __clang_analyzer__ /* as for pal_fail: what comes back is never 0 */
#define cli_error(code, ...)  (cli_error(code, __VA_ARGS__), (code))
#define cli_fail(err)         (cli_fail(err), CLI_FAILED)
#define cli_fail_writing(err) (cli_fail_writing(err), CLI_FAILED)
#endif
/* Whether a file can be made at path, asked before the work whose result it shall hold. */
int cli_check_target(const char *path);

/* Keeps other processes out of a directory until *fd is closed (or the process ends). Where one is in it already:
 * waits, or says so and returns CLI_USAGE. A file system without locks is used without. */
int cli_lock(const char *directory, bool wait, int *fd);
/* The same for a directory that is made if needed, *made: by this call. pal_unlock_directory removes it again if it was
 * made and nothing is in it. */
int cli_lock_new(const char *directory, int *fd, bool *made);

int cmd_selftest(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_tokenize(int argc, char **argv);
int cmd_convert(int argc, char **argv);
int cmd_inspect(int argc, char **argv);
int cmd_needle(int argc, char **argv);
int cmd_plot(int argc, char **argv);
int cmd_train(int argc, char **argv);
int cmd_sweep(int argc, char **argv);
int cmd_compare(int argc, char **argv);
int cmd_generate(int argc, char **argv);
int cmd_serve(int argc, char **argv);
int cmd_chat_template(int argc, char **argv);
int cmd_eval(int argc, char **argv);
int cmd_version(int argc, char **argv);
int cmd_devices(int argc, char **argv);

#endif
