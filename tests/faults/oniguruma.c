/* SPDX-License-Identifier: MIT */
/* Oniguruma names malloc when it is compiled and takes no other. Its calls go through a table that the dynamic linker
 * keeps for it: there they are led to refused.c, so that its allocations are counted and refused as ours are. */
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *block, size_t size);

typedef struct {
    const ElfW(Sym) * symbols;
    const char *names;
    const ElfW(Rela) * tables[2];
    size_t bytes[2];
} linked;

static linked read_dynamic(const ElfW(Dyn) * d) {
    linked l = { 0 };
    for (; d->d_tag != DT_NULL; d++) {
        const void *at = (const void *)d->d_un.d_ptr;
        switch (d->d_tag) {
        case DT_SYMTAB: l.symbols = at; break;
        case DT_STRTAB: l.names = at; break;
        case DT_JMPREL: l.tables[0] = at; break;
        case DT_PLTRELSZ: l.bytes[0] = d->d_un.d_val; break;
        case DT_RELA: l.tables[1] = at; break;
        case DT_RELASZ: l.bytes[1] = d->d_un.d_val; break;
        default: break;
        }
    }
    return l;
}

static uintptr_t instead_of(const char *name) {
    if (strcmp(name, "malloc") == 0) return (uintptr_t)__wrap_malloc;
    if (strcmp(name, "calloc") == 0) return (uintptr_t)__wrap_calloc;
    if (strcmp(name, "realloc") == 0) return (uintptr_t)__wrap_realloc;
    return 0;
}

static void set(uintptr_t slot, uintptr_t value) {
    const uintptr_t size = (uintptr_t)sysconf(_SC_PAGESIZE), page = slot / size * size;
    void *at = (void *)page, *where = (void *)slot;
    if (mprotect(at, size, PROT_READ | PROT_WRITE)) abort();
    memcpy(where, &value, sizeof value);
}

static int redirect(struct dl_phdr_info *library, size_t size, void *changed) {
    (void)size;
    if (!strstr(library->dlpi_name, "libonig")) return 0;
    *(int *)changed = 0;
    for (int i = 0; i < library->dlpi_phnum; i++) {
        if (library->dlpi_phdr[i].p_type != PT_DYNAMIC) continue;
        const uintptr_t dynamic = library->dlpi_addr + library->dlpi_phdr[i].p_vaddr;
        const linked l = read_dynamic((const void *)dynamic);
        if (!l.symbols || !l.names) continue;
        for (int t = 0; t < 2; t++)
            for (size_t r = 0; l.tables[t] && r < l.bytes[t] / sizeof(ElfW(Rela)); r++) {
                const ElfW(Rela) *entry = &l.tables[t][r];
                const size_t symbol = sizeof(void *) == 8 ? ELF64_R_SYM(entry->r_info) : ELF32_R_SYM(entry->r_info);
                const uintptr_t new_one = symbol ? instead_of(l.names + l.symbols[symbol].st_name) : 0;
                if (!new_one) continue;
                set(library->dlpi_addr + entry->r_offset, new_one);
                ++*(int *)changed;
            }
    }
    return 0;
}

__attribute__((constructor)) static void begin(void) {
    int changed = -1; /* it is linked in, and its calls are led to refused.c as ours are */
    dl_iterate_phdr(redirect, &changed);
    if (changed >= 0 && changed < 2) { /* malloc and realloc at least: otherwise nothing of it would ever fail */
        fprintf(stderr, "faults/oniguruma.c: Oniguruma's calls for memory were not found\n");
        abort();
    }
}
