/* SPDX-License-Identifier: MIT */
/* The page: files of web/ as the build put them into the program, or of the directory that --web names. The browser is
 * instructed to load nothing from anywhere else. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/context.h"
#include "serve/inside.h"

static const char policy[] = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
                             "connect-src 'self'; base-uri 'none'; form-action 'none'; "
                             "frame-ancestors 'none'";

static const char *file_of(const char *path) { return strcmp(path, "/") == 0 ? "/index.html" : path; }

static const serve_asset *find(const char *path) {
    for (const serve_asset *a = serve_assets; a->path; a++)
        if (strcmp(a->path, file_of(path)) == 0) return a;
    return NULL;
}

static const char *type_of(const char *path) {
    static const char *const types[][2] = {
        { ".html", "text/html; charset=utf-8" },
        { ".css", "text/css; charset=utf-8" },
        { ".js", "text/javascript; charset=utf-8" },
        { ".svg", "image/svg+xml" },
        { ".png", "image/png" },
        { ".ico", "image/x-icon" },
    };
    const char *dot = strrchr(path, '.');
    for (size_t i = 0; dot && i < PAL_COUNT(types); i++)
        if (strcmp(dot, types[i][0]) == 0) return types[i][1];
    return NULL;
}

/* Opens a file below --web; -1: there is none. No part of a path begins with a dot, so none leads out of it. */
static int open_file(const pal_server *s, const char *path, struct stat *about) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/";
    char full[4096];
    path = file_of(path);
    if (strspn(path, letters) != strlen(path) || strstr(path, "/.") || !type_of(path) ||
        snprintf(full, sizeof full, "%s%s", s->options.web, path) >= (int)sizeof full)
        return -1;
    const int file = open(full, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (file >= 0 && (fstat(file, about) != 0 || !S_ISREG(about->st_mode))) {
        close(file);
        return -1;
    }
    return file;
}

bool serve_has_asset(const pal_server *s, const char *path) {
    struct stat about;
    if (!s->options.web) return find(path) != NULL;
    const int file = open_file(s, path, &about);
    if (file >= 0) close(file);
    return file >= 0;
}

static serve_result send_asset(serve_exchange *x, int status, struct MHD_Response *response, const char *etag) {
    if (!response) return MHD_NO;
    if (etag) MHD_add_response_header(response, "ETag", etag);
    MHD_add_response_header(response, "Cache-Control", "no-cache");
    MHD_add_response_header(response, "Content-Security-Policy", policy);
    MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    MHD_add_response_header(response, "Referrer-Policy", "no-referrer");
    return serve_send(x, status, type_of(file_of(x->path)), response);
}

serve_result serve_asset_get(serve_exchange *x) {
    const char *known = MHD_lookup_connection_value(x->connection, MHD_HEADER_KIND, "If-None-Match");
    if (x->server->options.web) {
        struct stat about;
        const int file = open_file(x->server, x->path, &about);
        if (file < 0) return serve_error(x, 404, NULL, "no such file: %s", strerror(errno));
        struct MHD_Response *response = MHD_create_response_from_fd((size_t)about.st_size, file);
        if (!response) close(file);
        return send_asset(x, 200, response, NULL);
    }
    const serve_asset *a = find(x->path);
    if (!a) return serve_error(x, 404, NULL, "no such file");
    const bool same = known && strstr(known, a->etag);
    return send_asset(x, same ? 304 : 200,
                      MHD_create_response_from_buffer(same ? 0 : a->size, (void *)a->data, MHD_RESPMEM_PERSISTENT),
                      a->etag);
}
