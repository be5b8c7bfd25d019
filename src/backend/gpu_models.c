/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/gpu_models.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "backend/cuda/sizes/contract.h"
#include "core/edit_distance.h"

/*
 * Peak rates: NVIDIA's datasheets of the A10, A40, L4, L40S, A100, H100, H200, RTX A6000 and RTX 6000 Ada and of HGX
 * B200, and its whitepapers on the architectures GA102 (RTX 30), Ada (RTX 40) and RTX Blackwell (RTX 50), which give
 * dense rates with sums in fp32. Where a datasheet has rates with sparsity alone (L4, H100, H200, HGX B200), half of
 * them; of GeForce GPUs the rates with sums in fp32, which are half of those with sums in fp16. The bandwidth of a B200
 * is that of DGX B200's datasheet, 64 TB/s for 8; resellers also give 7.7 TB/s. PCI Express, one way: 4.0 with 16 lanes
 * 32 GB/s, with 8 lanes 16 GB/s, 5.0 64 GB/s. NVLink, one way: half of what the datasheets of SXM modules have for both
 * ways; the other GPUs have none, or one for pairs, which a plan does not assume. Memory: the total that CUDA reports
 * with drivers of 2024 to 2026 and, where a GPU has it switched on by default, with ECC; rounded down.
 */
static const struct snug_gpu_model models[] = {
    {"NVIDIA GeForce RTX 3060", "RTX 3060 12GB", 86, 11.6, 360, 25.5, 12.7, 12.7, 32, 0},
    {"NVIDIA GeForce RTX 3070", "RTX 3070 8GB", 86, 7.6, 448, 40.6, 20.3, 20.3, 32, 0},
    {"NVIDIA GeForce RTX 3080", "RTX 3080 10GB", 86, 9.6, 760, 59.5, 29.8, 29.8, 32, 0},
    {"NVIDIA GeForce RTX 3090", "RTX 3090 24GB", 86, 23.5, 936, 71, 35.6, 35.6, 32, 0},
    {"NVIDIA GeForce RTX 4060 Ti 16GB", "", 89, 15.5, 288, 44.1, 22.1, 22.1, 16, 0},
    {"NVIDIA GeForce RTX 4070", "RTX 4070 12GB", 89, 11.6, 504, 58.3, 29.1, 29.1, 32, 0},
    {"NVIDIA GeForce RTX 4080", "RTX 4080 16GB", 89, 15.5, 717, 97.5, 48.7, 48.7, 32, 0},
    {"NVIDIA GeForce RTX 4090", "RTX 4090 24GB", 89, 23.5, 1008, 165.2, 82.6, 82.6, 32, 0},
    {"NVIDIA GeForce RTX 5070 Ti", "RTX 5070 Ti 16GB", 120, 15.4, 896, 87.9, 43.9, 43.9, 64, 0},
    {"NVIDIA GeForce RTX 5080", "RTX 5080 16GB", 120, 15.4, 960, 112.6, 56.3, 56.3, 64, 0},
    {"NVIDIA GeForce RTX 5090", "RTX 5090 32GB", 120, 31.3, 1792, 209.5, 104.8, 104.8, 64, 0},
    {"NVIDIA RTX A6000", "A6000", 86, 47.3, 768, 154.8, 77.4, 38.7, 32, 0},
    {"NVIDIA RTX 6000 Ada Generation", "RTX 6000 Ada", 89, 47.3, 960, 364.2, 182.1, 91.1, 32, 0},
    {"NVIDIA A10", "A10 24GB", 86, 22, 600, 125, 62.5, 31.2, 32, 0},
    {"NVIDIA A40", "A40 48GB", 86, 44.3, 696, 149.7, 74.8, 37.4, 32, 0},
    {"NVIDIA L4", "L4 24GB", 89, 22, 300, 121, 60, 30.3, 32, 0},
    {"NVIDIA L40S", "L40S 48GB", 89, 44.3, 864, 362, 183, 91.6, 32, 0},
    {"NVIDIA A100-SXM4-40GB", "A100 40GB|A100 SXM 40GB|A100-PCIE-40GB", 80, 39.3, 1555, 312, 156, 19.5, 32, 300},
    {"NVIDIA A100-SXM4-80GB", "A100 80GB|A100 SXM 80GB", 80, 79.1, 2039, 312, 156, 19.5, 32, 300},
    {"NVIDIA A100 80GB PCIe", "A100 PCIe 80GB", 80, 79.1, 1935, 312, 156, 19.5, 32, 0},
    {"NVIDIA H100 PCIe", "H100 PCIe 80GB", 90, 79.1, 2000, 756, 378, 51, 64, 0},
    {"NVIDIA H100 80GB HBM3", "H100|H100 SXM|H100 SXM5|H100 80GB", 90, 79.1, 3350, 989, 494, 67, 64, 450},
    {"NVIDIA H200", "H200 SXM|H200 141GB", 90, 139.8, 4800, 989, 494, 67, 64, 450},
    {"NVIDIA B200", "B200 SXM|B200 180GB", 100, 178.3, 8000, 2250, 1125, 75, 64, 900},
    {.name = "NVIDIA GeForce RTX 2080 Ti", .aliases = "", .capability = 75},
    {.name = "NVIDIA GeForce GTX 1080 Ti", .aliases = "", .capability = 61},
    {.name = "Tesla T4", .aliases = "", .capability = 75},
    {.name = "Tesla P100-PCIE-16GB", .aliases = "P100", .capability = 60},
    {.name = "Tesla V100-SXM2-16GB", .aliases = "V100|V100 16GB|V100 32GB|V100-SXM2-32GB", .capability = 70},
};
enum { MODELS = sizeof models / sizeof *models };

/* The letters and digits of a name in lower case, without makers and brands. */
static void plain_name(char out[SNUG_EDIT_SIZE], const char *name, size_t length) {
    static const char *const brands[] = {"nvidia", "geforce", "tesla"};
    size_t used = 0;
    for (size_t i = 0; i < length && used + 1 < SNUG_EDIT_SIZE; i++)
        if (isalnum((unsigned char)name[i])) out[used++] = (char)tolower((unsigned char)name[i]);
    out[used] = '\0';
    for (size_t i = 0; i < sizeof brands / sizeof *brands; i++) {
        const size_t brand = strlen(brands[i]);
        if (strncmp(out, brands[i], brand) == 0) memmove(out, out + brand, strlen(out + brand) + 1);
    }
}

/* The next name of a model, plain, or false: its own name first. *at is NULL at first. */
static bool next_name(const struct snug_gpu_model *model, const char **at, char out[SNUG_EDIT_SIZE]) {
    if (!*at) {
        plain_name(out, model->name, strlen(model->name));
        *at = model->aliases;
        return true;
    }
    const size_t length = strcspn(*at, "|");
    plain_name(out, *at, length);
    *at += length + ((*at)[length] == '|');
    return length > 0;
}

const struct snug_gpu_model *snug_gpu_model_find(const char *name) {
    char wanted[SNUG_EDIT_SIZE], known[SNUG_EDIT_SIZE];
    plain_name(wanted, name, strlen(name));
    for (size_t i = 0; i < MODELS; i++)
        for (const char *at = NULL; next_name(&models[i], &at, known);)
            if (strcmp(wanted, known) == 0) return &models[i];
    return NULL;
}

/* 0 if a name of the model contains the wanted one; else its edit distance, at most limit. */
static size_t distance_to(const struct snug_gpu_model *model, const char *wanted, size_t limit) {
    char known[SNUG_EDIT_SIZE];
    size_t least = limit;
    for (const char *at = NULL; next_name(model, &at, known);) {
        const size_t distance = *wanted && strstr(known, wanted) ? 0 : snug_edit_distance(wanted, known, limit);
        if (distance < least) least = distance;
    }
    return least;
}

struct list {
    char *text;
    size_t size, used, count;
};

static void add_name(struct list *list, const struct snug_gpu_model *model) {
    if (model->capability < SNUG_CUDA_LEAST_CAPABILITY || list->used >= list->size) return;
    list->used += (size_t)snprintf(list->text + list->used, list->size - list->used, "%s%s", list->count++ ? ", " : "",
                                   model->name);
}

void snug_gpu_model_list(const char *name, char *text, size_t size) {
    enum { MOST = 6 };
    struct list list = {.text = text, .size = size};
    char wanted[SNUG_EDIT_SIZE];
    plain_name(wanted, name, strlen(name));
    const size_t limit = strlen(wanted) / 3 + 1; /* a third of the letters may differ */
    *text = '\0';
    for (size_t distance = 0; distance < limit; distance++)
        for (size_t i = 0; i < MODELS && list.count < MOST; i++)
            if (distance_to(&models[i], wanted, limit) == distance) add_name(&list, &models[i]);
    const bool none = list.count == 0;
    for (size_t i = 0; none && i < MODELS; i++) add_name(&list, &models[i]);
}
