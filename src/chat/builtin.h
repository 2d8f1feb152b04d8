/* SPDX-License-Identifier: MIT */
#ifndef PAL_CHAT_BUILTIN_H
#define PAL_CHAT_BUILTIN_H

/* The text of a template that is built in; NULL: none has this name. */
const char *pal_chat_builtin(const char *name);

#endif
