/* SPDX-License-Identifier: MIT */
#include <ctype.h>
#include <math.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "plot/draw.h"
#include "plot/metrics.h"
#include "plot/report.h"
#include "plot/runs.h"
#include "plot/ticks.h"
#include "support/support.h"

static char folder[256];

static int make_folder(void **state) {
    (void)state;
    const char *root = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/palimpsa_plot.XXXXXX", root && *root ? root : "/tmp");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state) {
    (void)state;
    char command[400];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

/* A path below the folder, in one of a few buffers. */
static const char *in_folder(const char *name) {
    static char paths[8][512];
    static int next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static char *read_all(const char *path, size_t *size) {
    FILE *file = fopen(path, "rb");
    if (!file) fail_msg("%s was not written", path);
    fseek(file, 0, SEEK_END);
    *size = (size_t)ftell(file);
    rewind(file);
    char *text = malloc(*size + 1);
    assert_int_equal(fread(text, 1, *size, file), *size);
    text[*size] = '\0';
    fclose(file);
    return text;
}

static void write_text(const char *path, const char *text) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static bool exists(const char *path) { return access(path, F_OK) == 0; }

/* Enough XML to notice what a browser or a paper's tool chain would: nesting, quotes, entities. Returns a complaint or NULL. */
static const char *xml_complaint(const char *p) {
    char open[64][64];
    int depth = 0, elements = 0;
    while (*p) {
        if (*p == '&' && strncmp(p, "&amp;", 5) && strncmp(p, "&lt;", 4) && strncmp(p, "&gt;", 4) && strncmp(p, "&quot;", 6)) return "a bare &";
        if (*p != '<') {
            if (depth == 0 && !isspace((unsigned char)*p)) return "text outside the root";
            p++;
            continue;
        }
        p++;
        if (*p == '?' || *p == '!') {
            while (*p && *p != '>') p++;
            if (*p) p++;
            continue;
        }
        const bool closing = *p == '/';
        p += closing;
        char name[64];
        size_t n = 0;
        while (isalnum((unsigned char)*p) || *p == ':' || *p == '-') {
            if (n < 63) name[n++] = *p;
            p++;
        }
        name[n] = '\0';
        if (n == 0) return "a tag without a name";
        while (*p && *p != '>' && *p != '/') {
            if (*p == '"') {
                p++;
                while (*p && *p != '"' && *p != '<') p++;
                if (*p != '"') return "an attribute that does not end";
            }
            p++;
        }
        const bool empty = *p == '/';
        p += empty;
        if (*p != '>') return "a tag that does not end";
        p++;
        if (closing) {
            if (depth == 0 || strcmp(open[depth - 1], name) != 0) return "tags that cross";
            depth--;
        } else {
            elements++;
            if (!empty) {
                if (depth == 64) return "too deep";
                snprintf(open[depth++], 64, "%s", name);
            }
        }
    }
    return depth ? "a tag that is not closed" : elements ? NULL : "no element";
}

static void check_svg(const char *path) {
    size_t size;
    char *text = read_all(path, &size);
    assert_int_equal(strlen(text), size);
    assert_non_null(strstr(text, "<svg"));
    const char *complaint = xml_complaint(text);
    if (complaint) fail_msg("%s: %s", path, complaint);
    assert_null(strstr(text, " nan"));
    assert_null(strstr(text, " inf"));
    free(text);
}

static void check_png(const char *path, unsigned width, unsigned height) {
    static const unsigned char signature[8] = { 0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n' };
    size_t size;
    unsigned char *data = (unsigned char *)read_all(path, &size);
    assert_true(size > 33);
    assert_memory_equal(data, signature, 8);
    assert_memory_equal(data + 12, "IHDR", 4);
    assert_int_equal(data[16] << 24 | data[17] << 16 | data[18] << 8 | data[19], width);
    assert_int_equal(data[20] << 24 | data[21] << 16 | data[22] << 8 | data[23], height);
    assert_memory_equal(data + size - 8, "IEND", 4);
    free(data);
}

static void xml_check_sees_broken_files(void **state) {
    (void)state;
    assert_null(xml_complaint("<?xml version=\"1.0\"?>\n<a b=\"1 > 2\"><c/><d:e>x &amp; y</d:e></a>\n"));
    static const char *const broken[] = { "<a><b></a></b>", "<a>", "<a b=\"1></a>", "<a>&</a>", "", "x<a/>", "<a", "</a>" };
    for (size_t i = 0; i < PAL_COUNT(broken); i++)
        if (!xml_complaint(broken[i])) fail_msg("'%s' passed", broken[i]);
}

static void check_ticks(const pal_ticks *t, double lo, double hi, int wanted) {
    if (t->count < 2 || t->count > wanted + wanted / 2 + 5) fail_msg("%g .. %g: %d ticks, wanted %d", lo, hi, t->count, wanted);
    for (int i = 0; i < t->count; i++) {
        assert_true(t->at[i] >= lo && t->at[i] <= hi);
        assert_true(t->text[i][0] != '\0');
        if (i == 0) continue;
        assert_true(t->at[i] > t->at[i - 1]);
        if (strcmp(t->text[i], t->text[i - 1]) == 0) fail_msg("%.17g .. %.17g: two ticks read '%s'", lo, hi, t->text[i]);
    }
    for (int i = 0; i < t->minor_count; i++) assert_true(t->minor[i] >= lo && t->minor[i] <= hi);
}

static void ticks_are_round_increasing_and_told_apart(void **state) {
    (void)state;
    pal_rng rng = pal_rng_at(5, 1);
    pal_ticks t;
    for (int k = 0; k < 20000; k++) {
        const double centre = (k % 3 ? 1 : 0) * (pal_rng_uniform(&rng) - 0.5) * pow(10, 30 * (pal_rng_uniform(&rng) - 0.5));
        double lo = centre - pow(10, 40 * (pal_rng_uniform(&rng) - 0.5)), hi = centre + pow(10, 40 * (pal_rng_uniform(&rng) - 0.5));
        const int wanted = 2 + (int)pal_rng_below(&rng, 12);
        pal_range_widen(&lo, &hi, false);
        assert_true(lo < hi);
        pal_ticks_linear(&t, lo, hi, wanted);
        check_ticks(&t, lo, hi, wanted);
        const double step = t.at[1] - t.at[0];
        for (int i = 2; i < t.count; i++) assert_true(fabs((t.at[i] - t.at[i - 1]) / step - 1) < 1e-5);
    }
    for (int k = 0; k < 20000; k++) {
        double lo = pow(10, 300 * (pal_rng_uniform(&rng) - 0.5)), hi = lo * pow(10, (k % 2 ? 2.5 : 140) * pal_rng_uniform(&rng));
        const int wanted = 2 + (int)pal_rng_below(&rng, 12);
        pal_range_widen(&lo, &hi, true);
        assert_true(lo < hi);
        pal_ticks_log(&t, lo, hi, wanted);
        check_ticks(&t, lo, hi, wanted);
    }
}

static void tick_texts_read_as_people_write(void **state) {
    (void)state;
    static const struct {
        double lo, hi;
        int wanted;
        bool log;
        const char *first, *last;
    } cases[] = {
        { 0, 1, 5, false, "0", "1.0" },          { 0, 20000, 4, false, "0", "20k" },
        { 0, 3.3e7, 6, false, "0", "30M" },      { -2, 2, 4, false, "−2", "2" },
        { 0, 3e-3, 6, false, "0", "0.0030" },    { 0, 2e-5, 2, false, "0", "2×10⁻⁵" },
        { 0.01, 10, 4, true, "0.01", "10" },     { 1e-6, 1, 7, true, "10⁻⁶", "10⁰" },
        { 1, 50, 6, true, "1", "50" },           { 0, 2000, 5, false, "0", "2000" },
    };
    for (size_t i = 0; i < PAL_COUNT(cases); i++) {
        pal_ticks t;
        if (cases[i].log) pal_ticks_log(&t, cases[i].lo, cases[i].hi, cases[i].wanted);
        else pal_ticks_linear(&t, cases[i].lo, cases[i].hi, cases[i].wanted);
        assert_string_equal(t.text[0], cases[i].first);
        assert_string_equal(t.text[t.count - 1], cases[i].last);
    }
    static const struct {
        double value;
        const char *text;
    } numbers[] = { { 0, "0" },         { 0.98765, "0.9877" }, { 2000, "2000" },    { 257034, "257.0k" }, { -1.5e6, "−1.50M" },
                    { 2e-5, "2×10⁻⁵" }, { NAN, "–" },          { INFINITY, "∞" }, { 12.3456, "12.35" }, { 9.9999e-7, "1×10⁻⁶" } };
    for (size_t i = 0; i < PAL_COUNT(numbers); i++) {
        char text[64];
        pal_number_text(text, sizeof text, numbers[i].value);
        assert_string_equal(text, numbers[i].text);
    }
}

static void heat_colours_grow_lighter(void **state) {
    (void)state;
    double before = -1;
    for (int i = 0; i <= 100; i++) {
        const uint32_t c = pal_heat_colour(i / 100.0);
        const double light = 0.2126 * pow((c >> 16) / 255.0, 2.2) + 0.7152 * pow((c >> 8 & 255) / 255.0, 2.2) + 0.0722 * pow((c & 255) / 255.0, 2.2);
        assert_true(light > before);
        before = light;
    }
}

static void texts_become_valid_utf8(void **state) {
    (void)state;
    char out[PAL_TEXT_MAX];
    assert_string_equal(pal_text_clean(out, "a\xff" "b\n\xc3\xa9\xe2\x82"), "a?b \xc3\xa9??");
    assert_string_equal(pal_text_clean(out, "\xc0\xaf\xe0\x80\xaf\xed\xa0\x80\xf4\x90\x80\x80"), "????????????"); /* overlong, surrogate, too large */
    assert_string_equal(pal_text_clean(out, NULL), "");
    char longer[2000];
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    assert_true(strlen(pal_text_clean(out, longer)) < PAL_TEXT_MAX);
}

/* A figure with every kind of panel, from a few numbers. */
typedef struct {
    double x[50], y[50], low[50], high[50], cells[12], dots[6];
    pal_series series[3];
    pal_mark marks[2];
    pal_bar bars[4];
    pal_panel panels[4];
    pal_figure figure;
} sample;

static const char *const sample_groups[] = { "L = 128", "L = 256" }, *const sample_names[] = { "one <&> \"two\"", "b\xff" };

static void make_sample(sample *s) {
    *s = (sample){ 0 };
    for (int i = 0; i < 50; i++) {
        s->x[i] = i * 100;
        s->y[i] = 8 * exp(-i / 12.0) + 0.1;
        s->low[i] = s->y[i] - 0.2;
        s->high[i] = s->y[i] + 0.2;
    }
    for (int i = 0; i < 12; i++) s->cells[i] = i * i;
    for (int i = 0; i < 6; i++) s->dots[i] = 0.5 + 0.05 * i;
    for (int i = 0; i < 4; i++) s->bars[i] = (pal_bar){ 0.2 * (i + 1), 0.05, s->dots, 6 };
    s->series[0] = (pal_series){ .label = "first", .count = 50, .x = s->x, .y = s->y, .low = s->low, .high = s->high };
    s->series[1] = (pal_series){ .label = "second", .count = 50, .x = s->x, .y = s->high, .colour = 9, .points = true };
    s->series[2] = (pal_series){ .count = 50, .x = s->x, .y = s->low, .colour = 1, .dashed = true };
    s->marks[0] = (pal_mark){ 1000, "stage 2" };
    s->marks[1] = (pal_mark){ NAN, NULL };
    const pal_lines lines = { s->series, 3, s->marks, 2 };
    s->panels[0] = (pal_panel){ .kind = PAL_PANEL_LINES, .title = "linear", .x = { .label = "step" }, .y = { .label = "loss" }, .lines = lines };
    s->panels[1] = (pal_panel){ .kind = PAL_PANEL_LINES, .title = "log", .x = { .log = true }, .y = { .log = true }, .lines = lines };
    s->panels[2] = (pal_panel){ .kind = PAL_PANEL_BARS, .y = { .label = "accuracy" }, .bars = { sample_groups, 2, sample_names, NULL, 2, s->bars } };
    s->panels[3] = (pal_panel){ .kind = PAL_PANEL_HEAT, .heat = { .values = s->cells, .rows = 3, .columns = 4, .label = "importance" } };
    s->figure = (pal_figure){ .title = "A <title> & more", .panels = s->panels, .panel_count = 4, .columns = 2 };
}

static void figures_are_valid_svg_and_png(void **state) {
    (void)state;
    sample s;
    pal_error err;
    make_sample(&s);
    for (int theme = 0; theme < 2; theme++) {
        s.figure.theme = (pal_theme)theme;
        assert_int_equal(pal_figure_write_svg(&s.figure, in_folder("a.svg"), &err), PAL_OK);
        check_svg(in_folder("a.svg"));
        assert_int_equal(pal_figure_write_png(&s.figure, 1.5, in_folder("a.png"), &err), PAL_OK);
        check_png(in_folder("a.png"), 1320, 960);
    }
    s.figure.width = 500, s.figure.height = 300;
    assert_int_equal(pal_figure_write_png(&s.figure, 1, in_folder("a.png"), &err), PAL_OK);
    check_png(in_folder("a.png"), 500, 300);
    s.figure.width = PAL_FIGURE_MIN, s.figure.height = PAL_FIGURE_MIN;
    assert_int_equal(pal_figure_write_svg(&s.figure, in_folder("a.svg"), &err), PAL_OK);
    check_svg(in_folder("a.svg"));
}

static void the_same_figure_gives_the_same_bytes(void **state) {
    (void)state;
    sample s;
    size_t size[2];
    char *text[2];
    make_sample(&s);
    for (int i = 0; i < 2; i++) {
        /* In processes of their own, because cairo numbers the surfaces that a process makes and writes these numbers. */
        const pid_t child = fork();
        if (child == 0) _exit(pal_figure_write_svg(&s.figure, in_folder("same.svg"), NULL) ? 1 : 0);
        int code;
        assert_int_equal(waitpid(child, &code, 0), child);
        assert_true(WIFEXITED(code) && WEXITSTATUS(code) == 0);
        text[i] = read_all(in_folder("same.svg"), &size[i]);
    }
    assert_int_equal(size[0], size[1]);
    assert_memory_equal(text[0], text[1], size[0]);
    free(text[0]);
    free(text[1]);
}

static void png_shows_the_data(void **state) {
    (void)state;
    /* A series whose points all lie in the upper left quarter paints there and nowhere else. */
    double x[3] = { 0, 1, 2 }, y[3] = { 8, 9, 8.5 };
    const pal_series series = { .count = 3, .x = x, .y = y };
    const pal_panel panel = { .kind = PAL_PANEL_LINES, .x = { .fixed = true, .max = 10 }, .y = { .fixed = true, .max = 10 }, .lines = { &series, 1, NULL, 0 } };
    const pal_figure figure = { .panels = &panel, .panel_count = 1, .columns = 1, .width = 400, .height = 400 };
    cairo_surface_t *surface = cairo_image_surface_create(CAIRO_FORMAT_RGB24, 400, 400);
    assert_int_equal(pal_figure_draw(&figure, surface, 1, NULL), PAL_OK);
    cairo_surface_flush(surface);
    const unsigned char *data = cairo_image_surface_get_data(surface);
    const int stride = cairo_image_surface_get_stride(surface);
    int inside = 0, outside = 0;
    for (int row = 0; row < 400; row++)
        for (int column = 0; column < 400; column++) {
            uint32_t pixel;
            memcpy(&pixel, data + (size_t)row * (size_t)stride + 4 * (size_t)column, sizeof pixel);
            if ((pixel & 255) > (pixel >> 16 & 255) + 40) *(row < 200 && column < 200 ? &inside : &outside) += 1; /* blue */
        }
    assert_true(inside > 30);
    assert_int_equal(outside, 0);
    cairo_surface_destroy(surface);
}

static double odd_number(pal_rng *rng) {
    static const double odd[] = { 0, -0.0, 1, -1, 1e-320, -1e-300, 1e308, -1e308, 1e-12, 1e12, 5, 7 };
    switch (pal_rng_below(rng, 8)) {
    case 0: return NAN;
    case 1: return pal_rng_below(rng, 2) ? INFINITY : -INFINITY;
    case 2:
    case 3: return odd[pal_rng_below(rng, PAL_COUNT(odd))];
    default: return pal_rng_normal(rng) * pow(10, 20 * (pal_rng_uniform(rng) - 0.5));
    }
}

static void any_numbers_can_be_drawn(void **state) {
    (void)state;
    const int cases = getenv("PALIMPSA_TEST_LONG") ? 2000 : 60;
    pal_rng rng = pal_rng_at(77, 3);
    for (int k = 0; k < cases; k++) {
        sample s;
        make_sample(&s);
        for (int i = 0; i < 50; i++) {
            s.x[i] = k % 2 ? odd_number(&rng) : i;
            s.y[i] = odd_number(&rng), s.low[i] = odd_number(&rng), s.high[i] = odd_number(&rng);
        }
        for (int i = 0; i < 12; i++) s.cells[i] = odd_number(&rng);
        for (int i = 0; i < 6; i++) s.dots[i] = odd_number(&rng);
        for (int i = 0; i < 4; i++) s.bars[i] = (pal_bar){ odd_number(&rng), odd_number(&rng), s.dots, pal_rng_below(&rng, 7) };
        for (int i = 0; i < 3; i++) s.series[i].count = pal_rng_below(&rng, 4) ? pal_rng_below(&rng, 51) : pal_rng_below(&rng, 3);
        for (int i = 0; i < 4; i++) {
            s.panels[i].x.log = pal_rng_below(&rng, 2), s.panels[i].y.log = pal_rng_below(&rng, 2), s.panels[i].heat.log = pal_rng_below(&rng, 2);
            if (pal_rng_below(&rng, 4) == 0) s.panels[i].y.fixed = true, s.panels[i].y.min = odd_number(&rng), s.panels[i].y.max = odd_number(&rng);
        }
        s.panels[3].y.fixed = false;
        s.marks[0].x = odd_number(&rng);
        if (k % 5 == 0) s.panels[0].lines.series_count = 0, s.panels[2].bars.group_count = 0, s.panels[3].heat.rows = 0;
        s.figure.columns = 1 + k % 5;
        s.figure.share_x = k % 3 == 0;
        pal_error err;
        FILE *file = fopen(in_folder("odd.svg"), "wb"); /* not pal_figure_write_svg, which would sync the disk each time */
        if (pal_figure_inline_svg(&s.figure, "", file, &err)) fail_msg("case %d: %s", k, err.text);
        fclose(file);
        check_svg(in_folder("odd.svg"));
    }
}

static void long_runs_make_small_files_with_their_peaks(void **state) {
    (void)state;
    enum { N = 200000 };
    double *x = pal_alloc(N, sizeof *x), *y = pal_alloc(N, sizeof *y);
    for (int i = 0; i < N; i++) x[i] = i, y[i] = 5 + (i % 7) * 0.1;
    y[123456] = 50; /* one spike among many points */
    const pal_series series = { .count = N, .x = x, .y = y };
    const pal_panel panel = { .kind = PAL_PANEL_LINES, .y = { .fixed = true, .min = 0, .max = 60 }, .lines = { &series, 1, NULL, 0 } };
    const pal_figure figure = { .panels = &panel, .panel_count = 1, .columns = 1, .width = 600, .height = 400 };
    cairo_surface_t *surface = cairo_image_surface_create(CAIRO_FORMAT_RGB24, 600, 400);
    assert_int_equal(pal_figure_draw(&figure, surface, 1, NULL), PAL_OK);
    cairo_surface_flush(surface);
    const unsigned char *data = cairo_image_surface_get_data(surface);
    int blue = 0; /* in the row that only the spike crosses, well above 6 */
    for (int column = 60; column < 600; column++) {
        uint32_t pixel;
        memcpy(&pixel, data + 150 * (size_t)cairo_image_surface_get_stride(surface) + 4 * (size_t)column, sizeof pixel);
        blue += (pixel & 255) > (pixel >> 16 & 255) + 40;
    }
    assert_in_range(blue, 1, 6);
    cairo_surface_destroy(surface);
    assert_int_equal(pal_figure_write_svg(&figure, in_folder("long.svg"), NULL), PAL_OK);
    struct stat info;
    assert_int_equal(stat(in_folder("long.svg"), &info), 0);
    assert_true(info.st_size < 150000);
    pal_free(x);
    pal_free(y);
}

static void bad_figures_are_refused_and_leave_no_file(void **state) {
    (void)state;
    sample s;
    pal_error err;
    make_sample(&s);
    s.figure.width = 5;
    assert_int_equal(pal_figure_write_svg(&s.figure, in_folder("no.svg"), &err), PAL_E_ARGUMENT);
    assert_non_null(strstr(err.text, "5 x"));
    s.figure.width = 100000;
    assert_int_equal(pal_figure_write_png(&s.figure, 1, in_folder("no.png"), &err), PAL_E_ARGUMENT);
    s.figure.width = 0;
    assert_int_equal(pal_figure_write_png(&s.figure, NAN, in_folder("no.png"), &err), PAL_E_ARGUMENT);
    assert_int_equal(pal_figure_write_png(&s.figure, 1000, in_folder("no.png"), &err), PAL_E_ARGUMENT);
    s.figure.panel_count = 0;
    assert_int_equal(pal_figure_write_svg(&s.figure, in_folder("no.svg"), &err), PAL_E_ARGUMENT);
    make_sample(&s);
    assert_int_equal(pal_figure_write_svg(&s.figure, in_folder("nowhere/no.svg"), &err), PAL_E_IO);
    assert_non_null(strstr(err.text, "nowhere/no.svg"));
    assert_false(exists(in_folder("no.svg")) || exists(in_folder("no.png")));
}

static void inline_figures_share_no_names(void **state) {
    (void)state;
    sample s;
    make_sample(&s);
    FILE *file = fopen(in_folder("inline.svg"), "wb");
    assert_int_equal(pal_figure_inline_svg(&s.figure, "f7-", file, NULL), PAL_OK);
    fclose(file);
    size_t size;
    char *text = read_all(in_folder("inline.svg"), &size);
    assert_memory_equal(text, "<svg", 4);
    assert_null(xml_complaint(text));
    static const char *const starts[] = { " id=\"", "href=\"#", "url(#" };
    for (size_t i = 0; i < PAL_COUNT(starts); i++) {
        int seen = 0;
        for (const char *p = text; (p = strstr(p, starts[i])); seen++) {
            p += strlen(starts[i]);
            assert_memory_equal(p, "f7-", 3);
        }
        assert_true(seen > 0);
    }
    free(text);
}

static void reports_stand_alone_and_escape_text(void **state) {
    (void)state;
    sample s;
    pal_report report;
    pal_error err;
    make_sample(&s);
    const char *const head[] = { "run", "loss" }, *const cells[] = { "<script>alert(1)</script>", "0.5", "b & c", NULL };
    char *sentence = malloc(5000);
    for (int i = 0; i < 4999; i++) sentence[i] = "\xc3\xa9"[i % 2];
    sentence[4998] = '\0'; /* 2499 times an accented letter: long texts are written whole */
    write_text(in_folder("r.html"), "before");
    assert_int_equal(pal_report_open(&report, in_folder("r.html"), "Loss < 1 & \"more\"", &err), PAL_OK);
    pal_report_heading(&report, "A heading");
    pal_report_text(&report, sentence);
    pal_report_table(&report, head, 2, cells, 2);
    assert_int_equal(pal_report_figure(&report, &s.figure, "caption", &err), PAL_OK);
    size_t size;
    char *text = read_all(in_folder("r.html"), &size);
    assert_string_equal(text, "before"); /* nothing shows until it is closed */
    free(text);
    assert_int_equal(pal_report_close(&report, &err), PAL_OK);
    pal_report_drop(&report);
    text = read_all(in_folder("r.html"), &size);
    assert_non_null(strstr(text, "<title>Loss &lt; 1 &amp; &quot;more&quot;</title>"));
    assert_non_null(strstr(text, sentence));
    assert_null(strstr(text, "<script"));
    assert_null(strstr(text, "src="));
    assert_null(strstr(text, "@import"));
    for (const char *p = text; (p = strstr(p, "http")); p += 4) assert_memory_equal(p, "http://www.w3.org/", 18); /* names of XML, not addresses */
    int pictures = 0;
    for (const char *p = text; (p = strstr(p, "<svg")); p += 4) pictures++;
    assert_int_equal(pictures, 8);
    free(text);
    free(sentence);

    assert_int_equal(pal_report_open(&report, in_folder("r.html"), "other", &err), PAL_OK);
    pal_report_drop(&report);
    text = read_all(in_folder("r.html"), &size);
    assert_null(strstr(text, "<title>other"));
    free(text);
}

static void metrics_survive_torn_and_foreign_lines(void **state) {
    (void)state;
    pal_metrics m;
    pal_error err;
    write_text(in_folder("m.jsonl"),
               "{\"step\": 1, \"loss\": 5.5, \"lr\": 0.001, \"tokens\": 100, \"tokens_per_s\": 50, \"surprise\": {\"a\": [1]}}\n"
               "not json at all\n"
               "[1, 2]\n"
               "{\"loss\": 3}\n"
               "\n"
               "{\"step\": 2, \"loss\": null, \"n_t\": [10, 20, null], \"ratio\": [[1, 3], [2, 2]], \"tokens\": 300, \"tokens_per_s\": 100}\r\n"
               "{\"step\": \"three\", \"loss\": 3}\n"
               "\xff\xfe{}\n"
               "{\"step\": 3, \"loss\": 4.0, \"valid_loss\": 4.25}\n"
               "{\"step\": 4, \"loss\": 3.0}\n"
               "{\"step\": 3, \"loss\": 3.5}\n"
               "{\"step\": 4, \"loss\": 2.5, \"accu");
    if (pal_metrics_read(&m, in_folder("m.jsonl"), &err)) fail_msg("%s", err.text);
    assert_int_equal(m.count, 3);
    assert_int_equal(m.skipped, 5);
    assert_true(m.column[PAL_METRIC_LOSS][0] == 5.5 && isnan(m.column[PAL_METRIC_LOSS][1]) && m.column[PAL_METRIC_LOSS][2] == 3.5);
    assert_true(pal_metrics_has(&m, 1, PAL_METRIC_LOSS) && !pal_metrics_has(&m, 1, PAL_METRIC_LR));
    assert_true(!pal_metrics_has(&m, 2, PAL_METRIC_VALID_LOSS)); /* belongs to the step that was run again */
    assert_true(m.column[PAL_METRIC_N_T][1] == 15 && m.column[PAL_METRIC_RATIO][1] == 2);
    assert_true(m.column[PAL_METRIC_SECONDS][0] == 2 && m.column[PAL_METRIC_SECONDS][1] == 4);
    pal_metrics_free(&m);

    static const char *const empty[] = { "", "\n\n", "{\"step\": 1, \"lo", "garbage\n" };
    for (size_t i = 0; i < PAL_COUNT(empty); i++) {
        write_text(in_folder("m.jsonl"), empty[i]);
        assert_int_equal(pal_metrics_read(&m, in_folder("m.jsonl"), &err), PAL_E_FORMAT);
        assert_non_null(strstr(err.text, "m.jsonl"));
    }
    assert_int_equal(pal_metrics_read(&m, in_folder("absent.jsonl"), &err), PAL_E_IO);
    assert_int_equal(pal_metrics_read(&m, folder, &err), PAL_E_IO);
}

static void metrics_survive_any_cut_and_any_flipped_byte(void **state) {
    (void)state;
    static const char good[] = "{\"step\": 1, \"loss\": 5.5, \"n_t\": [1, 2]}\n{\"step\": 2, \"loss\": 5.0, \"n_t\": [1, 2]}\n{\"step\": 3, \"loss\": 4.5}\n";
    const char *path = in_folder("cut.jsonl");
    pal_metrics m;
    for (size_t cut = 0; cut <= strlen(good); cut++) {
        char text[sizeof good];
        snprintf(text, sizeof text, "%.*s", (int)cut, good);
        write_text(path, text);
        const pal_status st = pal_metrics_read(&m, path, NULL);
        /* A line counts once its closing brace is there. */
        size_t whole = 0;
        for (size_t i = 0; i < cut; i++) whole += good[i] == '}';
        assert_int_equal(st, whole ? PAL_OK : PAL_E_FORMAT);
        if (!st) assert_int_equal(m.count, whole);
        pal_metrics_free(&m);
    }
    pal_rng rng = pal_rng_at(3, 3);
    for (int k = 0; k < 500; k++) {
        char text[sizeof good];
        memcpy(text, good, sizeof good);
        text[pal_rng_below(&rng, sizeof good - 1)] ^= (char)(1 + pal_rng_below(&rng, 255));
        FILE *file = fopen(path, "wb");
        fwrite(text, 1, sizeof good - 1, file);
        fclose(file);
        pal_metrics_read(&m, path, NULL);
        for (size_t i = 1; i < m.count; i++) assert_true(m.column[PAL_METRIC_STEP][i] > m.column[PAL_METRIC_STEP][i - 1]);
        pal_metrics_free(&m);
    }
}

/* A made-up run: loss = level / step; dynamics when asked for. */
static const char *make_run(const char *name, const char *config, double level, int steps, bool dynamics) {
    const char *dir = in_folder(name);
    char path[600];
    mkdir(dir, 0777);
    snprintf(path, sizeof path, "%s/config.json", dir);
    if (config) write_text(path, config);
    snprintf(path, sizeof path, "%s/metrics.jsonl", dir);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    for (int s = 1; s <= steps; s++) {
        fprintf(file, "{\"step\": %d, \"loss\": %.17g, \"lr\": 0.001, \"tokens\": %d, \"tokens_per_s\": 1000, \"accuracy\": 0.5", s, level / s, 100 * s);
        if (dynamics) fprintf(file, ", \"n_t\": [%d, %d], \"ratio\": [2, 4]", s, 3 * s);
        fprintf(file, "}\n");
    }
    fclose(file);
    return dir;
}

static void runs_of_one_configuration_become_mean_and_deviation(void **state) {
    (void)state;
    const char *dirs[4];
    dirs[0] = make_run("g1", "{\"model\": \"palimpsa-d\", \"lr\": 0.001, \"seed\": 1, \"train\": {\"seed\": 1, \"clip\": true}}", 2, 20, true);
    dirs[1] = make_run("g2", "{\"train\": {\"clip\": true, \"seed\": 9}, \"model\": \"palimpsa-d\", \"seed\": 2, \"lr\": 0.001}", 4, 10, true);
    dirs[2] = make_run("g3", "{\"model\": \"palimpsa-d\", \"lr\": 0.01, \"seed\": 1, \"train\": {\"clip\": true}}", 7, 20, true);
    dirs[3] = make_run("g4", NULL, 5, 20, false);
    pal_runs *runs;
    pal_error err;
    if (pal_runs_open(&runs, dirs, 4, &err)) fail_msg("%s", err.text);
    assert_int_equal(pal_runs_groups(runs), 3);
    pal_figure figure;
    pal_runs_options options = { 0 };
    if (pal_runs_figure(runs, &options, &figure, &err)) fail_msg("%s", err.text);
    assert_int_equal(figure.panel_count, 3);
    const pal_lines *loss = &figure.panels[0].lines;
    assert_int_equal(loss->series_count, 3);
    assert_string_equal(loss->series[0].label, "Palimpsa-D, lr 0.001 (2 seeds)");
    assert_string_equal(loss->series[1].label, "Palimpsa-D, lr 0.01");
    assert_string_equal(loss->series[2].label, "g4");
    assert_int_equal(loss->series[0].count, 20);
    for (int i = 0; i < 20; i++) {
        const double s = i + 1, mean = i < 10 ? 3 / s : 2 / s, deviation = i < 10 ? sqrt(2) / s : 0;
        assert_true(loss->series[0].x[i] == s);
        assert_true(fabs(loss->series[0].y[i] - mean) < 1e-12);
        assert_true(fabs(loss->series[0].high[i] - mean - deviation) < 1e-12);
        assert_true(fabs(mean - deviation - loss->series[0].low[i]) < 1e-12);
        assert_true(fabs(loss->series[1].y[i] - 7 / s) < 1e-12);
    }
    assert_null(loss->series[1].low);
    assert_int_equal(figure.panels[2].lines.series_count, 1); /* equal learning rates, as logged, are one line */

    options.dynamics = true;
    options.x = PAL_X_TOKENS;
    if (pal_runs_figure(runs, &options, &figure, &err)) fail_msg("%s", err.text);
    assert_int_equal(figure.panel_count, 3);
    assert_int_equal(figure.columns, 1);
    assert_true(figure.panels[0].lines.series[0].y[4] == 10 && figure.panels[0].lines.series[0].x[4] == 500);
    assert_true(figure.panels[1].lines.series[0].y[0] == 3);
    assert_int_equal(figure.panels[0].lines.series_count, 2); /* g4 logged none */

    options = (pal_runs_options){ .x = PAL_X_TIME, .smooth = 3 };
    if (pal_runs_figure(runs, &options, &figure, &err)) fail_msg("%s", err.text);
    assert_true(fabs(figure.panels[0].lines.series[1].y[1] - (7.0 + 3.5 + 7.0 / 3) / 3) < 1e-12);
    assert_true(fabs(figure.panels[0].lines.series[1].y[0] - (7.0 + 3.5) / 2) < 1e-12);
    assert_true(fabs(figure.panels[0].lines.series[1].x[19] - 2.0) < 1e-12); /* 2000 tokens at 1000 a second */
    pal_runs_free(runs);
}

static void runs_that_cannot_be_shown_are_named(void **state) {
    (void)state;
    pal_runs *runs;
    pal_error err;
    pal_figure figure;
    const char *dir = make_run("plain", "{\"model\": \"x\"}", 1, 5, false);
    assert_int_equal(pal_runs_open(&runs, &dir, 1, &err), PAL_OK);
    assert_int_equal(pal_runs_figure(runs, &(pal_runs_options){ .dynamics = true }, &figure, &err), PAL_E_ARGUMENT);
    assert_non_null(strstr(err.text, "plain/metrics.jsonl"));
    assert_int_equal(pal_runs_write(runs, &(pal_runs_options){ 0 }, in_folder("plain.gif"), &err), PAL_E_ARGUMENT);
    assert_non_null(strstr(err.text, "plain.gif"));
    pal_runs_free(runs);
    dir = in_folder("nothing");
    assert_int_equal(pal_runs_open(&runs, &dir, 1, &err), PAL_E_IO);
    assert_non_null(strstr(err.text, "nothing/metrics.jsonl"));
    assert_null(runs);
}

static void short_memory_is_reported_and_leaves_no_part_of_a_file(void **state) {
    (void)state;
    const char *dirs[] = { make_run("m1", "{\"model\": \"a\", \"seed\": 1}", 1, 8, true), make_run("m2", "{\"model\": \"a\", \"seed\": 2}", 2, 8, true) };
    const char *out = in_folder("memory.html");
    pal_error err;
    uint64_t at = 1;
    for (;; at++) {
        pal_runs *runs = NULL;
        pal_alloc_fail_at(at);
        pal_status st = pal_runs_open(&runs, dirs, 2, &err);
        if (!st) st = pal_runs_write(runs, &(pal_runs_options){ 0 }, out, &err);
        pal_alloc_fail_at(0);
        pal_runs_free(runs);
        if (!st) break;
        assert_int_equal(st, PAL_E_MEMORY);
        if (!exists(out)) continue;
        /* Only syncing the directory, after the rename, may fail with the file in place: then it is whole. */
        size_t size;
        char *text = read_all(out, &size);
        assert_true(size > 8 && strcmp(text + size - 8, "</html>\n") == 0);
        free(text);
        unlink(out);
    }
    assert_true(at > 50);
    assert_true(exists(out));
}

/* The program beside this test, run with arguments; returns its exit code and what it said on stderr. */
static int run_program(const char *arguments, char *said, size_t size) {
    char self[400], command[2048];
    const ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    assert_true(n > 0);
    self[n] = '\0';
    *strrchr(self, '/') = '\0';
    const char *errors = in_folder("stderr");
    snprintf(command, sizeof command, "cd '%s' && '%s/../palimpsa' plot %s 2>'%s' >/dev/null", folder, self, arguments, errors);
    const int code = system(command);
    size_t length;
    char *text = read_all(errors, &length);
    snprintf(said, size, "%s", text);
    free(text);
    return WIFEXITED(code) ? WEXITSTATUS(code) : -1;
}

static void plot_command_draws_and_refuses(void **state) {
    (void)state;
    char said[1024];
    if (run_program("--help", said, sizeof said) == 127) skip(); /* built without the program */
    make_run("c1", "{\"model\": \"palimpsa-d\", \"seed\": 1}", 1, 30, true);
    make_run("c2", "{\"model\": \"palimpsa-d\", \"seed\": 2}", 2, 30, true);
    mkdir(in_folder("hollow"), 0777);
    mkdir(in_folder("void"), 0777);
    write_text(in_folder("void/metrics.jsonl"), "");
    static const struct {
        const char *arguments;
        int code;
        const char *says; /* part of the one sentence; NULL: nothing */
    } cases[] = {
        { "c1 c2 --out c.svg", 0, NULL },
        { "c1 --out c.png --width 600 --height 300 --scale 1 --theme dark", 0, NULL },
        { "c1 c2 --out c.html --title 'Two runs'", 0, NULL },
        { "c1 c2 --dynamics --x tokens --smooth 5 --log-y --out d.svg", 0, NULL },
        { "--out c.svg", 2, "at least one run directory" },
        { "c1", 2, "--out FILE is missing" },
        { "c1 --out c.pdf", 2, "c.pdf: expected a name that ends in .svg, .png or .html" },
        { "c1 c9 --out c.svg", 2, "c9/metrics.jsonl: cannot open" },
        { "hollow --out c.svg", 2, "hollow/metrics.jsonl: cannot open" },
        { "void --out c.svg", 2, "void/metrics.jsonl: no metrics in it" },
        { "c1 --out c.svg --x weeks", 2, "--x expects step, tokens or time, found 'weeks'" },
        { "c1 --out c.svg --theme pink", 2, "--theme expects light or dark, found 'pink'" },
        { "c1 --out c.svg --smooth -3", 2, "--smooth expects 0 or more points, found -3" },
        { "c1 --out c.svg --width 3", 2, "a figure of 3 x" },
        { "c1 --out c.png --scale 1000", 2, "a scale of 1000" },
        { "c1 --out c.svg --sideways", 2, "no option '--sideways'" },
        { "c1 --out nowhere/c.svg", 1, "nowhere/c.svg: cannot create" },
    };
    for (size_t i = 0; i < PAL_COUNT(cases); i++) {
        const int code = run_program(cases[i].arguments, said, sizeof said);
        if (code != cases[i].code) fail_msg("plot %s: exit code %d, expected %d: %s", cases[i].arguments, code, cases[i].code, said);
        if (!cases[i].says) {
            if (*said) fail_msg("plot %s: said '%s'", cases[i].arguments, said);
        } else if (!strstr(said, cases[i].says) || strchr(said, '\n') != said + strlen(said) - 1)
            fail_msg("plot %s: said '%s', expected one sentence with '%s'", cases[i].arguments, said, cases[i].says);
    }
    check_svg(in_folder("c.svg"));
    check_svg(in_folder("d.svg"));
    check_png(in_folder("c.png"), 600, 300);
    size_t size;
    char *text = read_all(in_folder("c.html"), &size);
    assert_non_null(strstr(text, "<h1>Two runs</h1>"));
    assert_non_null(strstr(text, "Learning dynamics"));
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(xml_check_sees_broken_files),
        cmocka_unit_test(ticks_are_round_increasing_and_told_apart),
        cmocka_unit_test(tick_texts_read_as_people_write),
        cmocka_unit_test(heat_colours_grow_lighter),
        cmocka_unit_test(texts_become_valid_utf8),
        cmocka_unit_test(figures_are_valid_svg_and_png),
        cmocka_unit_test(the_same_figure_gives_the_same_bytes),
        cmocka_unit_test(png_shows_the_data),
        cmocka_unit_test(any_numbers_can_be_drawn),
        cmocka_unit_test(long_runs_make_small_files_with_their_peaks),
        cmocka_unit_test(bad_figures_are_refused_and_leave_no_file),
        cmocka_unit_test(inline_figures_share_no_names),
        cmocka_unit_test(reports_stand_alone_and_escape_text),
        cmocka_unit_test(metrics_survive_torn_and_foreign_lines),
        cmocka_unit_test(metrics_survive_any_cut_and_any_flipped_byte),
        cmocka_unit_test(runs_of_one_configuration_become_mean_and_deviation),
        cmocka_unit_test(runs_that_cannot_be_shown_are_named),
        cmocka_unit_test(short_memory_is_reported_and_leaves_no_part_of_a_file),
        cmocka_unit_test(plot_command_draws_and_refuses),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
