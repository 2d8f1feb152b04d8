/* SPDX-License-Identifier: MIT */
#include "base/processors.h"

#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

/* The numbers in a file of a group, at most two. The word "max", or -1, means no limit. */
static int read_numbers(const char *root, const char *group, const char *name, double *first, double *second) {
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s%s/%s", root, group, name) >= (int)sizeof path) return 0;
    FILE *f = fopen(path, "re");
    if (!f) return 0;
    const int found = fscanf(f, "%lf %lf", first, second);
    fclose(f);
    return found;
}

static int processors_of(double quota, double period) {
    if (!(quota > 0) || !(period > 0) || quota / period > 1e6) return 0;
    const int whole = (int)(quota / period);
    return whole + (whole * period < quota ? 1 : 0);
}

/* One group: the second generation's cpu.max, or the first one's pair of files. */
static int granted_by(const char *root, const char *group) {
    double quota = 0, period = 0, none;
    if (read_numbers(root, group, "cpu.max", &quota, &period) == 2) return processors_of(quota, period);
    if (read_numbers(root, group, "cpu.cfs_quota_us", &quota, &none) >= 1 &&
        read_numbers(root, group, "cpu.cfs_period_us", &period, &none) >= 1)
        return processors_of(quota, period);
    return 0;
}

/* Whether a list such as "cpu,cpuacct" names the controller of processor time; "cpuset" is a different controller. */
static int limits_time(const char *controllers) {
    for (const char *at = controllers; *at; at += strcspn(at, ","), at += *at == ',')
        if (strcspn(at, ",") == 3 && strncmp(at, "cpu", 3) == 0) return 1;
    return 0;
}

int pal_processors_granted(const char *groups, const char *root) {
    char line[PATH_MAX + 256];
    int least = 0;
    FILE *f = fopen(groups, "re");
    if (!f) return 0;
    while (fgets(line, sizeof line, f)) { /* number:controllers:/group */
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':'), *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group || group[1] != '/') continue;
        *group++ = '\0';
        controllers++;
        char base[PATH_MAX];
        if (*controllers && !limits_time(controllers)) continue;
        if (snprintf(base, sizeof base, *controllers ? "%s/cpu" : "%s", root) >= (int)sizeof base) continue;
        for (;;) { /* the group, then those above it; in a container the names above may not exist here */
            if (strcmp(group, "/") == 0) *group = '\0';
            const int granted = granted_by(base, group);
            if (granted && (!least || granted < least)) least = granted;
            if (!*group) break;
            *strrchr(group, '/') = '\0';
        }
    }
    fclose(f);
    return least;
}

int pal_processors(void) {
    cpu_set_t set;
    const int here = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    const int granted = pal_processors_granted("/proc/self/cgroup", "/sys/fs/cgroup");
    return granted && granted < here ? granted : here;
}
