/* SPDX-License-Identifier: MIT */
/* One example of associative recall as a page shows it. */
#ifndef PAL_DATA_MQAR_EXAMPLE_H
#define PAL_DATA_MQAR_EXAMPLE_H

#include <jansson.h>

#include "data/mqar.h"

/* Its pairs, ids, labels and questions; of the test subset. */
pal_status pal_mqar_example(json_t **out, const pal_mqar_config *config, uint64_t seed, pal_error *err);

#endif
