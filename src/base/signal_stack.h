/* SPDX-License-Identifier: MIT */
/* Matrix products and signal handlers. While some of oneDNN's kernels run (2.6.3: its f32 products without packing, for
 * AVX and AVX-512), the stack pointer points to the beginning of a block of the heap. A handler that interrupts them on
 * that "stack" has its frame written over whatever lies below: the process crashes, later and elsewhere. So handlers
 * must run on their own stack (SA_ONSTACK), or on a thread that does not compute. */
#ifndef PAL_BASE_SIGNAL_STACK_H
#define PAL_BASE_SIGNAL_STACK_H

/* Gives the main thread, if it is the caller, a stack for handlers where it has none. Stays until the process ends. */
void pal_give_signal_stack(void);

#endif
