/* SPDX-License-Identifier: Apache-2.0 */
#include "core/build_id.h"

#include <elf.h>
#include <link.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

struct build_id {
    const void *bytes;
    size_t size;
};

static bool has_this_code(const struct dl_phdr_info *object) {
    const uintptr_t address = (uintptr_t)snug_build_id - (uintptr_t)object->dlpi_addr;
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &object->dlpi_phdr[i];
        if (segment->p_type == PT_LOAD && address - segment->p_vaddr < segment->p_memsz) return true;
    }
    return false;
}

/* Notes follow each other; each has a name and a descriptor, which are padded to the segment's alignment. */
static void find_in(const uint8_t *notes, size_t size, size_t alignment, struct build_id *out) {
    ElfW(Nhdr) note;
    for (size_t at = 0; at + sizeof note <= size;) {
        memcpy(&note, notes + at, sizeof note);
        const size_t name = at + sizeof note;
        const size_t bytes = name + (note.n_namesz + alignment - 1) / alignment * alignment;
        if (note.n_type == NT_GNU_BUILD_ID && memcmp(notes + name, ELF_NOTE_GNU, sizeof ELF_NOTE_GNU) == 0)
            *out = (struct build_id){notes + bytes, note.n_descsz};
        at = bytes + (note.n_descsz + alignment - 1) / alignment * alignment;
    }
}

static int visit(struct dl_phdr_info *object, size_t size, void *user) {
    (void)size;
    if (!has_this_code(object)) return 0;
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &object->dlpi_phdr[i];
        if (segment->p_type == PT_NOTE)
            find_in((const uint8_t *)object->dlpi_addr + segment->p_vaddr, segment->p_memsz, segment->p_align, user);
    }
    return 1;
}

const void *snug_build_id(size_t *size) {
    struct build_id found = {NULL, 0};
    dl_iterate_phdr(visit, &found);
    *size = found.size;
    return found.bytes;
}
