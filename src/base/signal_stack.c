/* SPDX-License-Identifier: MIT */
#include "base/signal_stack.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

enum { SIZE = 64 << 10 }; /* a frame with AVX-512's registers takes 3 KiB, with AMX's 11 */

void pal_give_signal_stack(void) {
    stack_t there;
    if (gettid() != getpid() || sigaltstack(NULL, &there) != 0 || !(there.ss_flags & SS_DISABLE)) return;
    void *memory = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory != MAP_FAILED) sigaltstack(&(stack_t){ .ss_sp = memory, .ss_size = SIZE }, NULL);
}
