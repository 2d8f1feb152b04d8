/* SPDX-License-Identifier: MIT */
/* palimpsa devices: what can compute in place of the CPU. */
#include <jansson.h>
#include <stdio.h>

#include "base/context.h"
#include "cli.h"
#include "format/json.h"
#include "palimpsa/device.h"

enum { MOST = 64 };

static json_t *device_json(int number, const pal_device_info *d) {
    char name[32];
    snprintf(name, sizeof name, "opencl:%d", number);
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:i, s:i, s:b, s:b, s:s*}", "device", name, "name",
                     d->name, "platform", d->platform, "driver", d->driver, "version", d->version, "memory_bytes",
                     (json_int_t)d->memory, "largest_buffer_bytes", (json_int_t)d->largest, "local_bytes",
                     (json_int_t)d->local, "compute_units", d->units, "group_items", d->group, "cpu", (int)d->is_cpu,
                     "usable", (int)d->usable, "why_not", d->usable ? NULL : d->why);
}

static void print_device(int number, const pal_device_info *d) {
    printf("opencl:%d  %s\n", number, d->name);
    printf("    %s, driver %s, %s\n", d->platform, d->driver, d->version);
    printf("    %d compute units, %.1f GiB of memory, buffers up to %.1f GiB, %llu KiB of local memory\n", d->units,
           (double)d->memory / 1073741824, (double)d->largest / 1073741824, (unsigned long long)d->local / 1024);
    if (!d->usable) printf("    not usable: %s\n", d->why);
    else if (d->is_cpu) puts("    usable, but a CPU: used only when it is named by number");
    else puts("    usable");
}

int cmd_devices(int argc, char **argv) {
    bool json = false;
    const cli_option options[] = { { "json", OPT_FLAG, &json, NULL, "print a JSON list" } };
    const cli_usage usage = {
        .synopsis = "devices [options]",
        .about = "Lists the devices that can compute in place of the CPU, over OpenCL 1.2.\n\n"
                 "Numbers are those of --device opencl:N. Without OpenCL the list is empty. PALIMPSA_OPENCL "
                 "names another library than libOpenCL.so.1.",
        .examples = "  palimpsa devices\n  palimpsa devices --json\n  palimpsa generate my-model --device opencl:0 "
                    "--prompt 'Once'\n",
        .options = options,
        .option_count = PAL_COUNT(options),
    };
    static pal_device_info devices[MOST];
    const char *none;
    pal_error err;
    int count;
    const int parsed = cli_parse(&usage, argc, argv, &none, 0, &count);
    if (parsed) return parsed < 0 ? CLI_OK : parsed;
    if (pal_devices(devices, MOST, &count, &err)) return cli_fail(&err);
    if (count > MOST) count = MOST;
    if (json) {
        json_t *list = json_array();
        for (int i = 0; i < count; i++) pal_json_append(list, device_json(i, &devices[i]));
        return cli_print_json(list, JSON_INDENT(2));
    }
    for (int i = 0; i < count; i++) print_device(i, &devices[i]);
    if (!count) puts("OpenCL finds no device here");
    return CLI_OK;
}
