/* SPDX-License-Identifier: MIT */
/* A checkpoint of a published family as a checkpoint of ours, and back: a source over a source. A tensor of a view is
 * rows of one tensor below, or of several one above the other, perhaps with other values. Where the values are those
 * below, so are the bytes: a mapped file stays mapped. */
#ifndef PAL_FORMAT_VIEW_H
#define PAL_FORMAT_VIEW_H

#include "format/families/family.h"
#include "format/source.h"

/* How a GGUF file's value heads come out: as they lie there, which only runs, or in the order of their groups. */
typedef enum pal_view_use { PAL_VIEW_AS_IT_LIES, PAL_VIEW_GROUPED } pal_view_use;

/* `source` becomes a view of itself under our names; source->config is that of blocks already. gguf: it is a GGUF file.
 */
pal_status pal_view_import(pal_source *source, const pal_family *family, bool gguf, pal_view_use use, pal_error *err);
/* A view of ours (with the configuration of blocks) under the family's names. `source` must outlive it. */
pal_status pal_view_export(pal_source *out, const pal_source *source, const pal_family *family, bool gguf,
                           pal_error *err);
/* Where a tensor of any source begins within the one that its file has: 0, unless that one holds several of ours. */
size_t pal_view_first(const pal_source *source, const pal_tensor *tensor);
/* Our name of (the first part of) a tensor of an exporting view. */
const char *pal_view_ours(const pal_source *view, size_t index);

#endif
