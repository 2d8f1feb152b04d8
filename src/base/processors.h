/* SPDX-License-Identifier: MIT */
/* How many processors this process may use: those of its affinity, or fewer where a container's limit (a cgroup's CPU
 * quota) grants less time than they have. */
#ifndef PAL_BASE_PROCESSORS_H
#define PAL_BASE_PROCESSORS_H

int pal_processors(void); /* at least 1 */

/* The processors that the quotas of the groups listed in file `groups` (/proc/self/cgroup) and of those above them
 * grant, rounded up; 0: no limit, or none that can be read. root: where the file system of groups is mounted. */
int pal_processors_granted(const char *groups, const char *root);

#endif
