/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

int cli_error(int code, const char *format, ...) {
    va_list args;
    va_start(args, format);
    fputs("palimpsa: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    return code;
}

int cli_fail(const pal_error *err) {
    return cli_error(err->status == PAL_E_MEMORY ? CLI_FAILED : CLI_USAGE, "%s", err->text);
}

static void print_help(const cli_usage *u) {
    printf("usage: palimpsa %s\n\n%s\n\noptions:\n", u->synopsis, u->about);
    for (size_t i = 0; i < u->option_count; i++) {
        const cli_option *o = &u->options[i];
        char left[64];
        snprintf(left, sizeof left, "--%s%s%s", o->name, o->argument ? " " : "", o->argument ? o->argument : "");
        printf("  %-22s %s\n", left, o->help);
    }
    printf("  %-22s %s\n\nexamples:\n%s", "--help", "show this", u->examples);
}

static const cli_option *find_option(const cli_usage *u, const char *name, size_t length) {
    for (size_t i = 0; i < u->option_count; i++)
        if (strlen(u->options[i].name) == length && memcmp(u->options[i].name, name, length) == 0) return &u->options[i];
    return NULL;
}

static int set_option(const cli_option *o, const char *text) {
    char *end;
    errno = 0;
    switch (o->type) {
    case OPT_TEXT: *(const char **)o->value = text; return CLI_OK;
    case OPT_INT: {
        const long value = strtol(text, &end, 10);
        if (errno || end == text || *end || value < INT_MIN || value > INT_MAX)
            return cli_error(CLI_USAGE, "--%s expects a whole number, found '%s'", o->name, text);
        *(int *)o->value = (int)value;
        return CLI_OK;
    }
    case OPT_FLOAT: {
        const double value = strtod(text, &end);
        if (end == text || *end || !isfinite(value)) return cli_error(CLI_USAGE, "--%s expects a number, found '%s'", o->name, text);
        *(double *)o->value = value;
        return CLI_OK;
    }
    case OPT_FLAG: break;
    }
    return CLI_OK;
}

int cli_parse(const cli_usage *u, int argc, char **argv, const char **positional, int max_positional, int *positional_count) {
    bool only_positional = false;
    *positional_count = 0;
    for (int i = 1; i < argc; i++) {
        const char *arg = argv[i];
        if (only_positional || arg[0] != '-' || arg[1] == '\0') {
            if (*positional_count == max_positional)
                return cli_error(CLI_USAGE, "%s: unexpected argument '%s'; see 'palimpsa %s --help'", argv[0], arg, argv[0]);
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
        const cli_option *o = find_option(u, name, equals ? (size_t)(equals - name) : strlen(name));
        if (!o) return cli_error(CLI_USAGE, "%s: no option '%s'; see 'palimpsa %s --help'", argv[0], arg, argv[0]);
        if (o->type == OPT_FLAG) {
            if (equals) return cli_error(CLI_USAGE, "--%s takes no value", o->name);
            *(bool *)o->value = true;
            continue;
        }
        const char *text = equals ? equals + 1 : i + 1 < argc ? argv[++i] : NULL;
        if (!text) return cli_error(CLI_USAGE, "--%s needs a value (%s)", o->name, o->argument);
        const int code = set_option(o, text);
        if (code) return code;
    }
    return CLI_OK;
}
