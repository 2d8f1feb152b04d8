/* SPDX-License-Identifier: MIT */
#include "memory/change/change.h"

PAL_VARIANTS(change_plain)
PAL_VARIANTS(change_paired)
