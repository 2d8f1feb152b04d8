/* SPDX-License-Identifier: MIT */
/* torch.save's zip: <root>/data.pkl describes tensors, <root>/data/<key> holds the bytes of one storage each. Tensors
 * that share a storage (a tied head) point to the same bytes. */
#include "format/torch_bin.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/context.h"
#include "base/directory.h"
#include "base/size.h"
#include "format/model_dir.h"
#include "format/pickle.h"
#include "format/zip.h"

enum { PATH_MAX_TEXT = 4200, NAME_MAX_TEXT = 300, TENSORS_MAX = 1 << 20 };

enum { G_DICT, G_TENSOR, G_PARAMETER, G_STORAGE };
static const char *const globals[] = {
    "collections OrderedDict",
    "torch._utils _rebuild_tensor_v2",
    "torch._utils _rebuild_parameter",
    "torch FloatStorage",
    "torch HalfStorage",
    "torch BFloat16Storage",
    "torch DoubleStorage",
    "torch LongStorage",
    "torch IntStorage",
    "torch ShortStorage",
    "torch CharStorage",
    "torch ByteStorage",
    "torch BoolStorage",
    NULL,
};
static const pal_dtype storages[] = { PAL_F32, PAL_F16, PAL_BF16, PAL_F64, PAL_I64,
                                      PAL_I32, PAL_I16, PAL_I8,   PAL_U8,  PAL_BOOL };

typedef struct {
    char *path; /* of the file */
    pal_zip zip;
    char *root; /* "archive/" */
    char *names;
    pal_zip_member **members; /* of each tensor */
} torch_file;

static void close_file(void *handle) {
    torch_file *f = handle;
    pal_zip_close(&f->zip);
    pal_free(f->path);
    pal_free(f->root);
    pal_free(f->names);
    pal_free(f->members);
    pal_free(f);
}

static pal_status check_tensor(void *handle, size_t index, pal_error *err) {
    torch_file *f = handle;
    return pal_zip_check(&f->zip, f->members[index], err);
}

static pal_status find_root(torch_file *f, pal_error *err) {
    static const char tail[] = "data.pkl";
    const size_t length = sizeof tail - 1;
    for (size_t i = 0; i < f->zip.count; i++) {
        const pal_zip_member *m = &f->zip.members[i];
        if (m->name_size < length || memcmp(m->name + m->name_size - length, tail, length) != 0) continue;
        const size_t root = m->name_size - length;
        if (root > NAME_MAX_TEXT / 2 || (root && m->name[root - 1] != '/') || memchr(m->name, 0, m->name_size))
            continue;
        if (f->root) return pal_fail(err, PAL_E_FORMAT, "%s: there are two pickles in it", f->path);
        if (!(f->root = pal_alloc(root + 1, 1)))
            return pal_fail(err, PAL_E_MEMORY, "out of memory while opening %s", f->path);
        memcpy(f->root, m->name, root);
    }
    return f->root ? PAL_OK
                   : pal_fail(err, PAL_E_FORMAT, "%s: there is no data.pkl in it; it was not written by torch.save",
                              f->path);
}

static pal_zip_member *member(const torch_file *f, const char *name, const char *key, size_t key_size) {
    char full[NAME_MAX_TEXT];
    const int n = snprintf(full, sizeof full, "%s%s%.*s", f->root, name, (int)key_size, key);
    return n < (int)sizeof full ? pal_zip_find(&f->zip, full) : NULL;
}

static pal_status check_byte_order(const torch_file *f, pal_error *err) {
    pal_zip_member *order = member(f, "byteorder", "", 0);
    if (!order) return PAL_OK; /* older files have none and are little-endian */
    const pal_status st = pal_zip_check(&f->zip, order, err);
    if (st) return st;
    if (order->size == 6 && memcmp(order->data, "little", 6) == 0) return PAL_OK;
    return pal_fail(err, PAL_E_UNSUPPORTED, "%s: the numbers are not little-endian", f->path);
}

/* ("storage", class, key, location, count) */
static pal_status read_storage(const torch_file *f, const pal_pickle *p, const char *name, const pal_pickle_node *node,
                               pal_dtype *dtype, size_t *count, pal_zip_member **bytes, pal_error *err) {
    static const char unsaid[] = "%s: tensor '%s' does not say where its storage is";
    const pal_pickle_node *d = pal_pickle_item(p, node, 0);
    if (node->kind != PAL_PICKLE_PERSISTENT || d->kind != PAL_PICKLE_LIST || d->count != 5)
        return pal_fail(err, PAL_E_FORMAT, unsaid, f->path, name);
    const pal_pickle_node *word = pal_pickle_item(p, d, 0), *class = pal_pickle_item(p, d, 1),
                          *key = pal_pickle_item(p, d, 2), *numel = pal_pickle_item(p, d, 4);
    if (word->kind != PAL_PICKLE_TEXT || word->size != 7 || memcmp(word->text, "storage", 7) != 0 ||
        class->kind != PAL_PICKLE_GLOBAL || class->value < G_STORAGE || key->kind != PAL_PICKLE_TEXT ||
        numel->kind != PAL_PICKLE_INT || numel->value < 0)
        return pal_fail(err, PAL_E_FORMAT, unsaid, f->path, name);
    *dtype = storages[class->value - G_STORAGE];
    *count = (size_t)numel->value;
    *bytes = key->size < 100 && !memchr(key->text, 0, key->size) ? member(f, "data/", key->text, key->size) : NULL;
    if (!*bytes) return pal_fail(err, PAL_E_FORMAT, "%s: the storage of tensor '%s' is not in the file", f->path, name);
    if (pal_size_mul(*count, pal_dtype_size(*dtype)) != (*bytes)->size)
        return pal_fail(err, PAL_E_FORMAT, "%s: the storage of tensor '%s' has %zu elements of %s but %zu bytes",
                        f->path, name, *count, pal_dtype_name(*dtype), (*bytes)->size);
    return PAL_OK;
}

static pal_status read_extents(const torch_file *f, const pal_pickle *p, pal_tensor *t, const pal_pickle_node *size,
                               const pal_pickle_node *stride, pal_error *err) {
    if (size->kind != PAL_PICKLE_LIST || stride->kind != PAL_PICKLE_LIST || size->count != stride->count ||
        size->count > PAL_MAX_RANK)
        return pal_fail(err, PAL_E_FORMAT, "%s: tensor '%s' has no proper shape and strides", f->path, t->name);
    t->rank = (int)size->count;
    int64_t strides[PAL_MAX_RANK];
    for (int i = 0; i < t->rank; i++) {
        const pal_pickle_node *n = pal_pickle_item(p, size, (uint32_t)i), *s = pal_pickle_item(p, stride, (uint32_t)i);
        t->shape[i] = n->value;
        strides[i] = s->value;
        if (n->kind != PAL_PICKLE_INT || s->kind != PAL_PICKLE_INT ||
            pal_size_of_shape(i + 1, t->shape) == PAL_TOO_LARGE)
            return pal_fail(err, PAL_E_FORMAT, "%s: tensor '%s': dimension %d is not a number that can be", f->path,
                            t->name, i);
    }
    t->count = pal_size_of_shape(t->rank, t->shape);
    size_t expected = 1;
    for (int i = t->rank - 1; i >= 0 && t->count; i--) {
        if (t->shape[i] > 1 && (strides[i] < 0 || (size_t)strides[i] != expected))
            return pal_fail(err, PAL_E_UNSUPPORTED,
                            "%s: tensor '%s' is not contiguous: dimension %d has stride %lld, expected %llu; call "
                            ".contiguous() before saving",
                            f->path, t->name, i, (long long)strides[i], (unsigned long long)expected);
        expected = pal_size_mul(expected, (size_t)t->shape[i]);
    }
    return PAL_OK;
}

/* (storage, offset, size, stride, requires_grad, hooks [, metadata]) */
static pal_status read_tensor(const torch_file *f, const pal_pickle *p, pal_tensor *t, const pal_pickle_node *node,
                              pal_zip_member **bytes, pal_error *err) {
    pal_status st;
    const pal_pickle_node *args = node->kind == PAL_PICKLE_CALL ? pal_pickle_item(p, node, 0) : NULL;
    if (args && node->value == G_PARAMETER) { /* (tensor, requires_grad, hooks) */
        const pal_pickle_node *inner = pal_pickle_item(p, args, 0);
        node = inner && inner->kind == PAL_PICKLE_CALL ? inner : node;
        args = pal_pickle_item(p, node, 0);
    }
    if (!args || node->value != G_TENSOR || args->count < 6)
        return pal_fail(err, PAL_E_FORMAT, "%s: '%s' is not a tensor", f->path, t->name);
    const pal_pickle_node *offset = pal_pickle_item(p, args, 1);
    size_t numel = 0;
    if ((st = read_storage(f, p, t->name, pal_pickle_item(p, args, 0), &t->dtype, &numel, bytes, err))) return st;
    if ((st = read_extents(f, p, t, pal_pickle_item(p, args, 2), pal_pickle_item(p, args, 3), err))) return st;
    if (offset->kind != PAL_PICKLE_INT || offset->value < 0 ||
        !pal_size_inside((uint64_t)offset->value, t->count, numel))
        return pal_fail(err, PAL_E_FORMAT,
                        "%s: tensor '%s' of %zu elements at offset %lld reaches beyond its storage of %zu", f->path,
                        t->name, t->count, (long long)(offset->kind == PAL_PICKLE_INT ? offset->value : -1), numel);
    t->data = (*bytes)->data + (size_t)offset->value * pal_dtype_size(t->dtype);
    return PAL_OK;
}

/* A key that the pickle recalls, instead of spelling it again, would make many long names of few bytes: such names are
 * refused here, before there is room for them, and others that are there twice by the list of all. */
static pal_status read_names(torch_file *f, const pal_pickle *p, const pal_pickle_node *root, pal_error *err) {
    size_t bytes = 0, i = 0;
    pal_status st = PAL_OK;
    if (root->kind != PAL_PICKLE_DICT)
        return pal_fail(err, PAL_E_FORMAT, "%s: the pickle is not a dictionary of tensors", f->path);
    if (root->count / 2 > TENSORS_MAX)
        return pal_fail(err, PAL_E_FORMAT, "%s: %u tensors, at most %d are read", f->path, root->count / 2,
                        TENSORS_MAX);
    void *block;
    if ((st = pal_alloc_named(&block, p->node_count, sizeof(bool), "the names of a torch file", err))) return st;
    bool *taken = block;
    for (uint32_t c = root->first; c != PAL_PICKLE_END && !st; c = p->cells[p->cells[c].next].next, i++) {
        const uint32_t node = p->cells[c].node;
        const pal_pickle_node *key = &p->nodes[node];
        if (key->kind != PAL_PICKLE_TEXT || key->size == 0 || key->size > NAME_MAX_TEXT ||
            memchr(key->text, 0, key->size))
            st = pal_fail(err, PAL_E_FORMAT, "%s: entry %zu of the dictionary has no proper name", f->path, i);
        else if (taken[node])
            st = pal_fail(err, PAL_E_FORMAT, "%s: tensor '%.*s' is there twice", f->path,
                          key->size < 200 ? (int)key->size : 200, key->text);
        taken[node] = true;
        bytes += key->size + 1;
    }
    pal_free(taken);
    if (st) return st;
    f->names = pal_alloc(bytes + 1, 1);
    f->members = pal_alloc(root->count / 2 + 1, sizeof *f->members);
    return f->names && f->members ? PAL_OK
                                  : pal_fail(err, PAL_E_MEMORY, "out of memory for the tensors of %s", f->path);
}

static pal_status list_tensors(torch_file *f, pal_source *source, const pal_pickle *p, pal_error *err) {
    const pal_pickle_node *root = &p->nodes[p->root];
    pal_status st;
    size_t used = 0, i = 0, bytes = 0;
    for (uint32_t c = root->first; c != PAL_PICKLE_END; c = p->cells[p->cells[c].next].next, i++) {
        const pal_pickle_node *key = &p->nodes[p->cells[c].node], *value = &p->nodes[p->cells[p->cells[c].next].node];
        char *name = f->names + used;
        memcpy(name, key->text, key->size);
        used += key->size + 1;
        pal_tensor t = { .name = name };
        if ((st = read_tensor(f, p, &t, value, &f->members[i], err))) return st;
        pal_source_add(source, &t, i, NULL);
        bytes = pal_size_add(bytes, pal_size_mul(t.count, pal_dtype_size(t.dtype)));
    }
    /* An embedding and the head may be one; many tensors on one storage would make a small file a huge model. */
    if (bytes / 2 > f->zip.map.size)
        return pal_fail(err, PAL_E_FORMAT, "%s: its tensors have %zu bytes, the file has %zu; too many share a storage",
                        f->path, bytes, f->zip.map.size);
    return PAL_OK;
}

static pal_status refuse_old(const char *path, const pal_map *map, pal_error *err) {
    if (map->size >= 4 && memcmp(map->data, "PK\3\4", 4) == 0) return PAL_OK;
    if (map->size >= 2 && map->data[0] == 0x80)
        return pal_fail(err, PAL_E_UNSUPPORTED, "%s: written by torch before 1.6; load it there and save it again",
                        path);
    return pal_fail(err, PAL_E_FORMAT, "%s: not a file of torch.save (no zip)", path);
}

static pal_status open_file(pal_source *source, const char *path, pal_error *err) {
    pal_status st;
    void *block;
    pal_map map;
    pal_pickle pickle = { 0 };
    if ((st = pal_map_open(&map, path, err))) return st;
    st = refuse_old(path, &map, err);
    pal_map_close(&map);
    if (st) return st;
    if ((st = pal_alloc_named(&block, 1, sizeof(torch_file), "a torch file", err))) return st;
    torch_file *f = block;
    const pal_tensor_file file = { .handle = f, .check = check_tensor, .close = close_file };
    bool owned = true;
    if (!(f->path = pal_strdup(path))) {
        st = pal_fail(err, PAL_E_MEMORY, "out of memory while opening %s", path);
        goto done;
    }
    if ((st = pal_zip_open(&f->zip, f->path, err)) || (st = find_root(f, err)) || (st = check_byte_order(f, err)))
        goto done;
    pal_zip_member *data = member(f, "data.pkl", "", 0);
    if ((st = pal_zip_check(&f->zip, data, err)) ||
        (st = pal_pickle_read(&pickle, f->path, data->data, data->size, globals, err)))
        goto done;
    if ((st = read_names(f, &pickle, &pickle.nodes[pickle.root], err))) goto done;
    if ((st = pal_source_add_file(source, &file, pickle.nodes[pickle.root].count / 2, err))) goto done;
    owned = false;
    st = list_tensors(f, source, &pickle, err);
done:
    pal_pickle_free(&pickle);
    if (owned) close_file(f);
    return st;
}

static pal_status open_index(pal_source *source, const char *directory, const char *path, pal_error *err) {
    char file[PATH_MAX_TEXT + 300];
    json_t *index, *value;
    const char **files, *name;
    size_t n;
    pal_status st = pal_index_read(&index, &files, &n, path, err);
    if (st) return st;
    for (size_t i = 0; i < n && !st; i++) {
        snprintf(file, sizeof file, "%s/%s", directory, files[i]);
        st = open_file(source, file, err);
    }
    if (!st) st = pal_source_sort(source, err);
    if (!st) {
        json_object_foreach(json_object_get(index, "weight_map"), name, value) {
            if (st || pal_source_find(source, name)) continue;
            st = pal_fail(err, PAL_E_FORMAT, "%s: tensor '%s' is not in %s, where the index says it is", path, name,
                          json_string_value(value));
        }
    }
    pal_free(files);
    json_decref(index);
    return st;
}

bool pal_has_torch(const char *directory) {
    return pal_directory_has(directory, "pytorch_model.bin") ||
           pal_directory_has(directory, "pytorch_model.bin.index.json");
}

pal_status pal_torch_open(pal_source *out, const char *directory, pal_error *err) {
    char path[PATH_MAX_TEXT];
    pal_status st;
    if (!(out->path = pal_strdup(directory)))
        return pal_fail(err, PAL_E_MEMORY, "out of memory while opening %s", directory);
    snprintf(path, sizeof path, "%s/config.json", directory);
    if ((st = pal_json_read(&out->config, path, err))) return st;
    snprintf(path, sizeof path, "%s/pytorch_model.bin", directory);
    if (access(path, F_OK) == 0) {
        if ((st = open_file(out, path, err))) return st;
        return pal_source_sort(out, err);
    }
    snprintf(path, sizeof path, "%s/pytorch_model.bin.index.json", directory);
    return open_index(out, directory, path, err);
}
