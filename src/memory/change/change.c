/* SPDX-License-Identifier: MIT */
#include "memory/change/change.h"

PAL_VARIANTS(change_plain)
PAL_VARIANTS(change_paired)
PAL_VARIANTS(change_plain_ahead)
PAL_VARIANTS(change_paired_ahead)
