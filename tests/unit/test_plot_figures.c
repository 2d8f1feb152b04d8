/* SPDX-License-Identifier: MIT */
/* Figures and reports as files: valid whatever the numbers are, the same bytes again, and showing the data. */
#include <jansson.h>
#include <math.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "plot/layout.h"
#include "plot/report.h"
#include "support/files.h"
#include "support/pictures.h"

static bool exists(const char *path) { return access(path, F_OK) == 0; }

static void xml_check_sees_broken_files(void **state) {
    (void)state;
    assert_null(test_xml_complaint("<?xml version=\"1.0\"?>\n<a b=\"1 > 2\"><c/><d:e>x &amp; y</d:e></a>\n"));
    static const char *const broken[] = { "<a><b></a></b>", "<a>", "<a b=\"1></a>", "<a>&</a>", "",
                                          "x<a/>",          "<a",  "</a>" };
    for (size_t i = 0; i < PAL_COUNT(broken); i++)
        if (!test_xml_complaint(broken[i])) fail_msg("'%s' passed", broken[i]);
}

static void heat_colours_grow_lighter(void **state) {
    (void)state;
    double before = -1;
    for (int i = 0; i <= 100; i++) {
        const uint32_t c = pal_heat_colour(i / 100.0);
        const double light = 0.2126 * pow((c >> 16) / 255.0, 2.2) + 0.7152 * pow((c >> 8 & 255) / 255.0, 2.2) +
                             0.0722 * pow((c & 255) / 255.0, 2.2);
        assert_true(light > before);
        before = light;
    }
}

static void texts_become_valid_utf8(void **state) {
    (void)state;
    char out[PAL_TEXT_MAX];
    assert_string_equal(pal_text_clean(out, "a\xff"
                                            "b\n\xc3\xa9\xe2\x82"),
                        "a?b \xc3\xa9??");
    assert_string_equal(pal_text_clean(out, "\xc0\xaf\xe0\x80\xaf\xed\xa0\x80\xf4\x90\x80\x80"),
                        "????????????"); /* overlong, surrogate, too large */
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

static const char *const sample_groups[] = { "L = 128", "L = 256" }, *const sample_names[] = { "one <&> \"two\"",
                                                                                               "b\xff" };

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
    s->panels[0] = (pal_panel){
        .kind = PAL_PANEL_LINES, .title = "linear", .x = { .label = "step" }, .y = { .label = "loss" }, .lines = lines
    };
    s->panels[1] = (pal_panel){
        .kind = PAL_PANEL_LINES, .title = "log", .x = { .log = true }, .y = { .log = true }, .lines = lines
    };
    s->panels[2] = (pal_panel){ .kind = PAL_PANEL_BARS,
                                .y = { .label = "accuracy" },
                                .bars = { sample_groups, 2, sample_names, NULL, 2, s->bars } };
    s->panels[3] = (pal_panel){ .kind = PAL_PANEL_HEAT,
                                .heat = { .values = s->cells, .rows = 3, .columns = 4, .label = "importance" } };
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
        test_svg(in_folder("a.svg"));
        assert_int_equal(pal_figure_write_png(&s.figure, 1.5, in_folder("a.png"), &err), PAL_OK);
        test_png(in_folder("a.png"), 1320, 960);
    }
    s.figure.width = 500, s.figure.height = 300;
    assert_int_equal(pal_figure_write_png(&s.figure, 1, in_folder("a.png"), &err), PAL_OK);
    test_png(in_folder("a.png"), 500, 300);
    s.figure.width = PAL_FIGURE_MIN, s.figure.height = PAL_FIGURE_MIN;
    assert_int_equal(pal_figure_write_svg(&s.figure, in_folder("a.svg"), &err), PAL_OK);
    test_svg(in_folder("a.svg"));
}

static void the_same_figure_gives_the_same_bytes(void **state) {
    (void)state;
    sample s;
    size_t size[2];
    char *text[2];
    make_sample(&s);
    for (int i = 0; i < 2; i++) {
        /* In processes of their own, because cairo numbers the surfaces that a process makes and writes these numbers.
         */
        const pid_t child = fork();
        if (child == 0) _exit(pal_figure_write_svg(&s.figure, in_folder("same.svg"), NULL) ? 1 : 0);
        int code;
        assert_int_equal(waitpid(child, &code, 0), child);
        assert_true(WIFEXITED(code) && WEXITSTATUS(code) == 0);
        text[i] = (char *)test_read_file(in_folder("same.svg"), &size[i]);
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
    const pal_panel panel = { .kind = PAL_PANEL_LINES,
                              .x = { .fixed = true, .max = 10 },
                              .y = { .fixed = true, .max = 10 },
                              .lines = { &series, 1, NULL, 0 } };
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
            if ((pixel & 255) > (pixel >> 16 & 255) + 40)
                *(row < 200 && column < 200 ? &inside : &outside) += 1; /* blue */
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
    const int cases = test_cases(60, 2000);
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
        for (int i = 0; i < 4; i++)
            s.bars[i] = (pal_bar){ odd_number(&rng), odd_number(&rng), s.dots, pal_rng_below(&rng, 7) };
        for (int i = 0; i < 3; i++)
            s.series[i].count = pal_rng_below(&rng, 4) ? pal_rng_below(&rng, 51) : pal_rng_below(&rng, 3);
        for (int i = 0; i < 4; i++) {
            s.panels[i].x.log = pal_rng_below(&rng, 2), s.panels[i].y.log = pal_rng_below(&rng, 2),
            s.panels[i].heat.log = pal_rng_below(&rng, 2);
            if (pal_rng_below(&rng, 4) == 0)
                s.panels[i].y.fixed = true, s.panels[i].y.min = odd_number(&rng), s.panels[i].y.max = odd_number(&rng);
        }
        s.panels[3].y.fixed = false;
        s.marks[0].x = odd_number(&rng);
        if (k % 5 == 0) s.panels[0].lines.series_count = 0, s.panels[2].bars.group_count = 0, s.panels[3].heat.rows = 0;
        s.figure.columns = 1 + k % 5;
        s.figure.share_x = k % 3 == 0;
        pal_error err;
        FILE *file = fopen(in_folder("odd.svg"),
                           "wb"); /* not pal_figure_write_svg, which would sync the disk each time */
        if (pal_figure_inline_svg(&s.figure, "", file, &err)) fail_msg("case %d: %s", k, err.text);
        fclose(file);
        test_svg(in_folder("odd.svg"));
    }
}

static void long_runs_make_small_files_with_their_peaks(void **state) {
    (void)state;
    enum { N = 200000 };
    double *x = pal_alloc(N, sizeof *x), *y = pal_alloc(N, sizeof *y);
    for (int i = 0; i < N; i++) x[i] = i, y[i] = 5 + (i % 7) * 0.1;
    y[123456] = 50; /* one spike among many points */
    const pal_series series = { .count = N, .x = x, .y = y };
    const pal_panel panel = { .kind = PAL_PANEL_LINES,
                              .y = { .fixed = true, .min = 0, .max = 60 },
                              .lines = { &series, 1, NULL, 0 } };
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
    char *text = (char *)test_read_file(in_folder("inline.svg"), &size);
    assert_memory_equal(text, "<svg", 4);
    assert_null(test_xml_complaint(text));
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

/* The numbers that the script draws are those of the picture. */
static void check_curves(const char *text, const sample *s, const char *name) {
    static const char start[] = "<script type=\"application/json\">";
    const char *at = strstr(text, start);
    assert_non_null(at);
    json_t *chart = json_loads(at + strlen(start), JSON_DISABLE_EOF_CHECK, NULL);
    assert_non_null(chart);
    const json_t *first = json_array_get(json_object_get(chart, "series"), 0);
    assert_string_equal(json_string_value(json_object_get(first, "label")), name);
    assert_int_equal(json_array_size(json_object_get(chart, "series")), 3);
    assert_int_equal(json_array_size(json_object_get(first, "y")), 49); /* one has no place */
    assert_true(json_is_null(json_array_get(json_object_get(first, "y"), 3)));
    for (size_t i = 5; i < 49; i++) {
        const double x = json_number_value(json_array_get(json_object_get(first, "x"), i)),
                     high = json_number_value(json_array_get(json_object_get(first, "high"), i));
        assert_true(x == s->x[i + 1] && fabs(high - s->high[i + 1]) < 1e-6);
    }
    assert_null(strstr(at + 1, start)); /* the other panel of lines has marks, and is a picture only */
    json_decref(chart);
}

static void reports_stand_alone_and_escape_text(void **state) {
    (void)state;
    sample s;
    pal_report report;
    pal_error err;
    make_sample(&s);
    s.panels[0].lines.mark_count = 0;
    s.series[0].name = "</script><b>\"\\ &";
    s.y[3] = NAN, s.x[4] = NAN;
    const char *const head[] = { "run", "loss" }, *const cells[] = { "<script>alert(1)</script>", "0.5", "b & c",
                                                                     NULL };
    char *sentence = malloc(5000);
    for (int i = 0; i < 4999; i++) sentence[i] = "\xc3\xa9"[i % 2];
    sentence[4998] = '\0'; /* 2499 times an accented letter: long texts are written whole */
    test_write_text(in_folder("r.html"), "before");
    assert_int_equal(pal_report_open(&report, in_folder("r.html"), "Loss < 1 & \"more\"", &err), PAL_OK);
    pal_report_heading(&report, "A heading");
    pal_report_text(&report, sentence);
    pal_report_table(&report, head, 2, cells, 2);
    assert_int_equal(pal_report_figure(&report, &s.figure, "caption", &err), PAL_OK);
    size_t size;
    char *text = (char *)test_read_file(in_folder("r.html"), &size);
    assert_string_equal(text, "before"); /* nothing shows until it is closed */
    free(text);
    assert_int_equal(pal_report_close(&report, &err), PAL_OK);
    pal_report_drop(&report);
    text = (char *)test_read_file(in_folder("r.html"), &size);
    assert_non_null(strstr(text, "<title>Loss &lt; 1 &amp; &quot;more&quot;</title>"));
    assert_non_null(strstr(text, sentence));
    assert_null(strstr(text, "<script>alert"));
    assert_null(strstr(text, "</script><b>"));
    check_curves(text, &s, s.series[0].name);
    assert_non_null(strstr(text, "<script>\n")); /* ours */
    assert_null(strstr(text, "\nexport "));
    assert_null(strstr(text, "import "));
    assert_null(strstr(text, "src="));
    assert_null(strstr(text, "@import"));
    for (const char *p = text; (p = strstr(p, "http")); p += 4)
        assert_memory_equal(p, "http://www.w3.org/", 18); /* names of XML, not addresses */
    int pictures = 0;
    for (const char *p = text; (p = strstr(p, "<svg")); p += 4) pictures++;
    assert_int_equal(pictures, 8);
    free(text);
    free(sentence);

    assert_int_equal(pal_report_open(&report, in_folder("r.html"), "other", &err), PAL_OK);
    pal_report_drop(&report);
    text = (char *)test_read_file(in_folder("r.html"), &size);
    assert_null(strstr(text, "<title>other"));
    free(text);
}

/* Layers are counted: between 0 and 1 there is no tick, however much room there is. */
static void axes_of_whole_numbers_have_no_ticks_between_them(void **state) {
    (void)state;
    const double x[] = { 0, 1 }, y[] = { 3, 4 };
    const pal_series series = { .count = 2, .x = x, .y = y };
    for (int whole = 0; whole < 2; whole++) {
        const pal_panel panel = { .x = { .whole = whole, .fixed = true, .min = -0.5, .max = 1.5 },
                                  .lines = { .series = &series, .series_count = 1 } };
        const pal_figure figure = { .panels = &panel, .panel_count = 1, .columns = 1 };
        cairo_surface_t *surface = cairo_image_surface_create(CAIRO_FORMAT_ARGB32, 8, 8);
        pal_canvas c = { .figure = &figure,
                         .theme = pal_theme_of(PAL_THEME_LIGHT),
                         .width = 640,
                         .height = 400,
                         .cr = cairo_create(surface) };
        pal_error err;
        if (pal_layout_make(&c, &err)) fail_msg("%s", err.text);
        const pal_ticks *ticks = &c.frames[0].x.ticks;
        if (whole) {
            assert_true(ticks->count == 2 && ticks->at[0] == 0 && ticks->at[1] == 1);
            assert_string_equal(ticks->text[1], "1");
        } else assert_true(ticks->count > 2);
        cairo_destroy(c.cr);
        cairo_surface_destroy(surface);
        pal_free(c.legend);
        pal_free(c.frames);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(xml_check_sees_broken_files),
        cmocka_unit_test(heat_colours_grow_lighter),
        cmocka_unit_test(texts_become_valid_utf8),
        cmocka_unit_test(figures_are_valid_svg_and_png),
        cmocka_unit_test(the_same_figure_gives_the_same_bytes),
        cmocka_unit_test(png_shows_the_data),
        cmocka_unit_test(any_numbers_can_be_drawn),
        cmocka_unit_test(long_runs_make_small_files_with_their_peaks),
        cmocka_unit_test(bad_figures_are_refused_and_leave_no_file),
        cmocka_unit_test(axes_of_whole_numbers_have_no_ticks_between_them),
        cmocka_unit_test(inline_figures_share_no_names),
        cmocka_unit_test(reports_stand_alone_and_escape_text),
    };
    return cmocka_run_group_tests(tests, test_folder_make, test_folder_remove);
}
