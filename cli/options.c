/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/blocks.h"
#include "base/context.h"
#include "base/directory.h"
#include "base/io.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/map.h"
#include "base/nearest.h"
#include "cli.h"
#include "format/json.h"
#include "ranks.h"

/* jansson reports out-of-memory as a parse error; this corrects the exit code and the sentence. */
int(cli_error)(int code, const char *format, ...) {
    if (pal_json_short()) code = CLI_FAILED;
    const char *who = ranks_speak(code);
    if (!who) return code;
    char text[8192]; /* names from files and paths are in it */
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    pal_tame(text);
    fprintf(stderr, "palimpsa: %s%s%s\n", who, pal_json_short() ? "out of memory for JSON: " : "", text);
    return code;
}

int cli_code_of(pal_status status) {
    return status == PAL_STOPPED ? CLI_INTERRUPTED : status == PAL_E_MEMORY ? CLI_FAILED : CLI_USAGE;
}

int(cli_fail)(const pal_error *err) { return cli_error(cli_code_of(err->status), "%s", err->text); }

const char *cli_shell_word(const char *path, char *out, size_t size) {
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789/._-+=:,@%";
    size_t n = 0;
    if (*path && path[strspn(path, plain)] == '\0') return path;
    out[n++] = '\'';
    for (; *path && n + 6 < size; path++) {
        if (*path == '\'') n += (size_t)snprintf(out + n, size - n, "'\\''");
        else out[n++] = *path;
    }
    out[n++] = '\'';
    out[n] = '\0';
    return out;
}

int cli_path(char *out, size_t size, const char *format, ...) {
    va_list arguments;
    pal_error err;
    va_start(arguments, format);
    const pal_status st = pal_vpath(out, size, &err, format, arguments);
    va_end(arguments);
    return st ? cli_fail(&err) : CLI_OK;
}

int cli_plain_dtype(pal_dtype *out, const char *option, const char *name) {
    *out = pal_dtype_named(name, strlen(name));
    if (*out == PAL_F32 || *out == PAL_BF16 || *out == PAL_F16) return CLI_OK;
    return cli_error(CLI_USAGE, "--%s '%s': expected f32, bf16 or f16", option, name);
}

int(cli_fail_writing)(const pal_error *err) {
    return err->status == PAL_E_IO ? cli_error(CLI_FAILED, "%s", err->text) : cli_fail(err);
}

int cli_check_target(const char *path) {
    pal_writer w;
    pal_error err;
    if (pal_writer_open(&w, path, &err)) return cli_fail_writing(&err);
    pal_writer_drop(&w);
    return CLI_OK;
}

int cli_lock(const char *directory, bool wait, int *fd) {
    pal_error err;
    return pal_lock_directory(fd, directory, wait, &err) ? cli_fail(&err) : CLI_OK;
}

int cli_lock_new(const char *directory, int *fd, bool *made) {
    pal_error err;
    return pal_lock_new_directory(fd, made, directory, &err) ? cli_fail_writing(&err) : CLI_OK;
}

static bool same_group(const char *a, const char *b) { return a == b || (a && b && strcmp(a, b) == 0); }

enum { HELP_WIDTH = 79, HELP_COLUMN = 25 };

/* Prints words up to `end`, broken at blanks: the first line begins at `column`, the others are indented. */
static void print_wrapped(const char *text, const char *end, int column, int indent) {
    bool first = true;
    while (text < end) {
        const size_t left = (size_t)(end - text), blank = strcspn(text, " \n");
        const int length = (int)(blank < left ? blank : left);
        if (!first && column + 1 + length > HELP_WIDTH) {
            printf("\n%*s", indent, "");
            column = indent;
        } else if (!first) {
            putchar(' ');
            column++;
        }
        printf("%.*s", length, text);
        column += length;
        first = false;
        text += length;
        text += strspn(text, " ");
    }
    putchar('\n');
}

/* Paragraphs; a line that begins with a blank is kept as it is. */
static void print_about(const char *text) {
    for (const char *end; *text; text = *end ? end + 1 : end) {
        end = text + strcspn(text, "\n");
        if (*text == ' ') printf("%.*s\n", (int)(end - text), text);
        else print_wrapped(text, end, 0, 0);
    }
}

/* A command that is too long for the terminal continues, as a shell allows, before one of its words. */
static void print_example(const char *line, const char *end) {
    while (end - line > HELP_WIDTH) {
        const char *cut = line + HELP_WIDTH - 2, *option = cut;
        while (option > line + 20 && strncmp(option, " --", 3) != 0) option--;
        if (option > line + 20) cut = option;
        else
            while (cut > line + 20 && *cut != ' ') cut--;
        printf("%.*s \\\n     ", (int)(cut - line), line);
        line = cut;
    }
    printf("%.*s\n", (int)(end - line), line);
}

/* Prints up to `most` lines and returns what is left. */
static const char *print_examples(const char *lines, int most) {
    for (; *lines && most > 0; most--) {
        const char *end = lines + strcspn(lines, "\n");
        print_example(lines, end);
        lines = *end ? end + 1 : end;
    }
    return lines;
}

static void print_option(const char *name, const char *argument, const char *help) {
    const int length = printf("  --%s%s%s", name, argument ? " " : "", argument ? argument : "");
    if (length < HELP_COLUMN) printf("%*s", HELP_COLUMN - length, "");
    else printf("\n%*s", HELP_COLUMN, "");
    print_wrapped(help, help + strlen(help), HELP_COLUMN, HELP_COLUMN);
}

static void print_help(const cli_usage *u) {
    const char *rest = u->about + strcspn(u->about, "\n"), *group = NULL;
    printf("%.*s\n\nusage: ", (int)(rest - u->about), u->about);
    printf("palimpsa ");
    print_wrapped(u->synopsis, u->synopsis + strlen(u->synopsis), 16, 7);
    printf("\nexamples:\n");
    const char *more = print_examples(u->examples, 3);
    print_about(rest + strspn(rest, "\n") - (*rest ? 1 : 0));
    printf("\noptions:\n");
    for (size_t i = 0; i < u->option_count; i++) {
        const cli_option *o = &u->options[i];
        if (!same_group(o->group, group)) printf("\n%s:\n", group = o->group);
        print_option(o->name, o->argument, o->help);
    }
    if (group) putchar('\n');
    print_option("help", NULL, "print this help");
    if (*more) printf("\nmore examples:\n");
    print_examples(more, INT_MAX);
}

static int set_whole(const cli_option *o, const char *text, int64_t least, int64_t most) {
    char *end;
    errno = 0;
    const long long value = strtoll(text, &end, 10);
    if (o->above_zero) least = 1;
    if (end == text || *end) return cli_error(CLI_USAGE, "--%s expects a whole number, found '%s'", o->name, text);
    if (errno || value < least || value > most)
        return cli_error(CLI_USAGE, "--%s expects a whole number from %lld to %lld, found '%s'", o->name,
                         (long long)least, (long long)most, text);
    if (o->type == OPT_INT) *(int *)o->value = (int)value;
    else *(int64_t *)o->value = value;
    return CLI_OK;
}

/* A whole number of bytes, such as 512, 64K or 2G. */
static int set_bytes(const cli_option *o, const char *text) {
    static const char units[] = "KMGT";
    char *end;
    errno = 0;
    const long long value = strtoll(text, &end, 10);
    const char *unit = *end ? strchr(units, *end) : NULL;
    const int shift = unit ? 10 * (int)(unit - units + 1) : 0;
    if (end == text || (*end && (!unit || end[1])) || errno || value < 0 || value > INT64_MAX >> shift)
        return cli_error(CLI_USAGE, "--%s expects bytes, such as 2147483648, 2097152K, 2048M or 2G, found '%s'",
                         o->name, text);
    *(int64_t *)o->value = (int64_t)value << shift;
    return CLI_OK;
}

static int set_option(const cli_option *o, const char *text) {
    char *end;
    switch (o->type) {
    case OPT_TEXT: *(const char **)o->value = text; return CLI_OK;
    case OPT_INT: return set_whole(o, text, INT_MIN, INT_MAX);
    case OPT_LONG: return o->bytes ? set_bytes(o, text) : set_whole(o, text, INT64_MIN, INT64_MAX);
    case OPT_FLOAT: {
        const double value = strtod(text, &end);
        if (end == text || *end || !isfinite(value))
            return cli_error(CLI_USAGE, "--%s expects a number, found '%s'", o->name, text);
        if (o->above_zero && !(value > 0))
            return cli_error(CLI_USAGE, "--%s expects a number above 0, found '%s'", o->name, text);
        *(double *)o->value = value;
        return CLI_OK;
    }
    case OPT_LIST: {
        cli_list *list = o->value;
        if (list->count == CLI_LIST_MAX)
            return cli_error(CLI_USAGE, "--%s may be given at most %d times", o->name, CLI_LIST_MAX);
        list->items[list->count++] = text;
        return CLI_OK;
    }
    case OPT_FLAG: break;
    }
    return CLI_OK;
}

/* The words of the command itself: "bench model" of "bench model [options]". */
static int command_length(const cli_usage *u) {
    size_t length = 0;
    for (const char *word = u->synopsis; *word >= 'a' && *word <= 'z'; word += strspn(word, " ")) {
        word += strcspn(word, " ");
        length = (size_t)(word - u->synopsis);
    }
    return (int)length;
}

/* Letters that other programs have, and our words; NULL: none of the command's. */
static const char *word_of_letter(const cli_usage *u, char letter) {
    static const struct {
        char letter;
        const char *word;
    } words[] = { { 'p', "prompt" },      { 'f', "prompt-file" }, { 'n', "max-tokens" },  { 't', "threads" },
                  { 'c', "max-context" }, { 's', "seed" },        { 'i', "interactive" }, { 'o', "out" },
                  { 'd', "data" },        { 'b', "batch" } };
    for (size_t i = 0; i < PAL_COUNT(words); i++)
        if (words[i].letter == letter &&
            pal_option_find(u->options, u->option_count, words[i].word, strlen(words[i].word)))
            return words[i].word;
    return NULL;
}

/* given: with its dashes. */
static int unknown_option(const cli_usage *u, const char *given) {
    const char *names[128] = { 0 };
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(given, "="), given); /* without its value */
    for (size_t i = 0; i < u->option_count && i < 127; i++) names[i] = u->options[i].name;
    const char *word = name + strspn(name, "-");
    const bool letter = word[0] && !word[1];
    const char *near = letter ? word_of_letter(u, *word) : pal_nearest(word, names);
    const int length = command_length(u);
    if (near)
        return cli_error(CLI_USAGE, "%.*s: no option '%s'; did you mean '--%s'?", length, u->synopsis, name, near);
    if (letter && *word == 'm' && !pal_option_find(u->options, u->option_count, "model", 5))
        return cli_error(CLI_USAGE, "%.*s: no option '%s'; the model is given without one: palimpsa %.*s MODEL", length,
                         u->synopsis, name, length, u->synopsis);
    return cli_error(CLI_USAGE, "%.*s: no option '%s'; see 'palimpsa %.*s --help'", length, u->synopsis, name, length,
                     u->synopsis);
}

/* The words that are not options, from argv[i] on, may be a text that lacks its option and its quotes. */
static int unexpected(const cli_usage *u, int argc, char **argv, int i) {
    const int length = command_length(u);
    if (!pal_option_find(u->options, u->option_count, "prompt", 6))
        return cli_error(CLI_USAGE, "%.*s: unexpected argument '%s'; see 'palimpsa %.*s --help'", length, u->synopsis,
                         argv[i], length, u->synopsis);
    char text[200];
    size_t used = 0;
    text[0] = '\0';
    for (int k = i; k < argc && argv[k][0] != '-' && used < sizeof text; k++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", k > i ? " " : "", argv[k]);
    char quoted[800];
    return cli_error(CLI_USAGE, "%.*s: unexpected argument '%s'; did you mean --prompt %s?", length, u->synopsis,
                     argv[i], strchr(text, ' ') ? cli_shell_word(text, quoted, sizeof quoted) : text);
}

int cli_read_config(const cli_usage *u, const char *path) {
    static json_t *kept; /* every configuration that was read, until the program ends: options point into them */
    pal_error err;
    if (!kept) kept = json_array();
    return pal_options_read(u->options, u->option_count, path, kept, &err) ? cli_fail(&err) : CLI_OK;
}

int cli_print_json(json_t *value, size_t flags) {
    const bool printed = pal_json_print(value, flags, stdout);
    json_decref(value);
    return printed ? CLI_OK : cli_error(CLI_FAILED, "cannot write to standard output: %s", strerror(errno));
}

json_t *cli_make_config(const cli_usage *u) { return pal_options_json(u->options, u->option_count); }

int cli_memory_file(char path[4096], const char *what, const char *text) {
    const int file = memfd_create("options", MFD_CLOEXEC);
    const ssize_t size = (ssize_t)strlen(text);
    if (file < 0 || write(file, text, (size_t)size) != size)
        return cli_error(CLI_FAILED, "cannot keep a copy of %s: %s", what, strerror(errno));
    snprintf(path, 4096, "/proc/self/fd/%d", file);
    return CLI_OK;
}

int cli_find_recipe(char path[4096], const char *name) {
    enum { MOST = 64 };
    const char *names[MOST + 1] = { NULL };
    for (int i = 0; cli_recipes[i].name && i < MOST; i++) {
        if (strcmp(cli_recipes[i].name, name) == 0) return cli_memory_file(path, "a recipe", cli_recipes[i].text);
        names[i] = cli_recipes[i].name;
    }
    const char *near = pal_nearest(name, names);
    if (near && *name) return cli_error(CLI_USAGE, "--recipe '%s': there is none; did you mean '%s'?", name, near);
    return cli_error(CLI_USAGE,
                     "--recipe expects the name of a file in configs, such as shakespeare, found '%s'; a "
                     "file of your own is given by --config",
                     name);
}

static bool ends_in_json(const char *word) {
    const size_t length = strlen(word);
    return length > 5 && word[0] != '-' && strcmp(word + length - 5, ".json") == 0;
}

int cli_parse(const cli_usage *u, int argc, char **argv, const char **positional, int max_positional,
              int *positional_count) {
    bool only_positional = false;
    *positional_count = 0;
    for (int i = 1; i < argc; i++) {
        const char *arg = argv[i];
        if (only_positional || arg[0] != '-' || arg[1] == '\0') {
            if (*positional_count == max_positional) return unexpected(u, argc, argv, i);
            positional[(*positional_count)++] = arg;
            continue;
        }
        if (strcmp(arg, "--") == 0) {
            only_positional = true;
            continue;
        }
        if (strcmp(arg, "--help") == 0 || strcmp(arg, "-h") == 0) {
            print_help(u);
            return -1;
        }
        const char *name = arg + (arg[1] == '-' ? 2 : 1), *equals = strchr(name, '=');
        const size_t length = equals ? (size_t)(equals - name) : strlen(name);
        const cli_option *o = pal_option_find(u->options, u->option_count, name, length);
        if (!o) return unknown_option(u, arg);
        if (o->type == OPT_FLAG) {
            if (equals) return cli_error(CLI_USAGE, "--%s takes no value", o->name);
            *(bool *)o->value = true;
            continue;
        }
        const bool left_out = o->alone && !equals && (i + 1 == argc || !ends_in_json(argv[i + 1]));
        const char *text = equals ? equals + 1 : left_out ? o->alone : i + 1 < argc ? argv[++i] : NULL;
        if (!text) return cli_error(CLI_USAGE, "--%s needs a value (%s)", o->name, o->argument);
        const int code = set_option(o, text);
        if (code) return code;
    }
    return CLI_OK;
}
