/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/gpu_models.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "backend/cuda/sizes/contract.h"
#include "core/edit_distance.h"

/*
 * Peak rates: NVIDIA's datasheets of the servers' and workstations' GPUs and of HGX B200, and its whitepapers on the
 * architectures Turing (RTX 20), GA102 (RTX 30), Ada (RTX 40) and RTX Blackwell (RTX 50), which give dense rates with
 * sums in fp32. Where a datasheet has rates with sparsity alone, half of them; of GeForce GPUs the rates with sums in
 * fp32, which are half of those with sums in fp16. GPUs that no whitepaper has: 2 x cores x the highest boost clock of
 * NVIDIA's comparison pages in fp32 (so laptops at the highest power that a maker may set), and tensor cores in the
 * architecture's proportion to it. Turing's tensor cores do not take TF32. The bandwidth of a B200 is that of DGX
 * B200's datasheet, 64 TB/s for 8; resellers also give 7.7 TB/s. PCI Express, one way: 3.0 with 16 lanes and 4.0 with 8
 * 16 GB/s, 4.0 with 16 and 5.0 with 8 32 GB/s, 5.0 with 16 64 GB/s. NVLink, one way: half of what the datasheets of SXM
 * modules have for both ways; the other GPUs have none, or one for pairs, which a plan does not assume. Memory: the
 * total that CUDA reports with drivers of 2024 to 2026 and, where a GPU has it switched on by default, with ECC;
 * rounded down.
 */
static const struct snug_gpu_model models[] = {
    {"NVIDIA GeForce RTX 2060", "RTX 2060 6GB", 75, 5.6, 336, 25.8, 0, 6.5, 16, 0, false},
    {"NVIDIA GeForce RTX 2060 12GB", "", 75, 11.6, 336, 28.7, 0, 7.2, 16, 0, false},
    {"NVIDIA GeForce RTX 2060 SUPER", "", 75, 7.6, 448, 28.7, 0, 7.2, 16, 0, false},
    {"NVIDIA GeForce RTX 2070", "RTX 2070 8GB", 75, 7.6, 448, 29.9, 0, 7.5, 16, 0, false},
    {"NVIDIA GeForce RTX 2070 SUPER", "", 75, 7.6, 448, 36.3, 0, 9.1, 16, 0, false},
    {"NVIDIA GeForce RTX 2080", "RTX 2080 8GB", 75, 7.6, 448, 40.3, 0, 10.1, 16, 0, false},
    {"NVIDIA GeForce RTX 2080 SUPER", "", 75, 7.6, 496, 44.6, 0, 11.2, 16, 0, false},
    {"NVIDIA GeForce RTX 2080 Ti", "RTX 2080 Ti 11GB", 75, 10.5, 616, 53.8, 0, 13.4, 16, 0, false},
    {"NVIDIA TITAN RTX", "TITAN RTX 24GB", 75, 23.4, 672, 130.5, 0, 16.3, 16, 0, false},
    {"NVIDIA GeForce RTX 3050", "RTX 3050 8GB", 86, 7.6, 224, 18.2, 9.1, 9.1, 16, 0, false},
    {"NVIDIA GeForce RTX 3050 6GB", "", 86, 5.6, 168, 13.5, 6.8, 6.8, 16, 0, false},
    {"NVIDIA GeForce RTX 3060", "RTX 3060 12GB", 86, 11.6, 360, 25.5, 12.7, 12.7, 32, 0, false},
    {"NVIDIA GeForce RTX 3060 Ti", "RTX 3060 Ti 8GB", 86, 7.6, 448, 32.4, 16.2, 16.2, 32, 0, false},
    {"NVIDIA GeForce RTX 3070", "RTX 3070 8GB", 86, 7.6, 448, 40.6, 20.3, 20.3, 32, 0, false},
    {"NVIDIA GeForce RTX 3070 Ti", "RTX 3070 Ti 8GB", 86, 7.6, 608, 43.5, 21.7, 21.7, 32, 0, false},
    {"NVIDIA GeForce RTX 3080", "RTX 3080 10GB", 86, 9.6, 760, 59.5, 29.8, 29.8, 32, 0, false},
    {"NVIDIA GeForce RTX 3080 12GB", "", 86, 11.6, 912, 61.3, 30.6, 30.6, 32, 0, false},
    {"NVIDIA GeForce RTX 3080 Ti", "RTX 3080 Ti 12GB", 86, 11.6, 912, 68.2, 34.1, 34.1, 32, 0, false},
    {"NVIDIA GeForce RTX 3090", "RTX 3090 24GB", 86, 23.5, 936, 71, 35.6, 35.6, 32, 0, false},
    {"NVIDIA GeForce RTX 3090 Ti", "RTX 3090 Ti 24GB", 86, 23.5, 1008, 80, 40, 40, 32, 0, false},
    {"NVIDIA GeForce RTX 4060", "RTX 4060 8GB", 89, 7.6, 272, 30.2, 15.1, 15.1, 16, 0, false},
    {"NVIDIA GeForce RTX 4060 Ti 8GB", "", 89, 7.6, 288, 44.1, 22.1, 22.1, 16, 0, false},
    {"NVIDIA GeForce RTX 4060 Ti 16GB", "", 89, 15.5, 288, 44.1, 22.1, 22.1, 16, 0, false},
    {"NVIDIA GeForce RTX 4070", "RTX 4070 12GB", 89, 11.6, 504, 58.3, 29.1, 29.1, 32, 0, false},
    {"NVIDIA GeForce RTX 4070 SUPER", "", 89, 11.6, 504, 71, 35.5, 35.5, 32, 0, false},
    {"NVIDIA GeForce RTX 4070 Ti", "RTX 4070 Ti 12GB", 89, 11.6, 504, 80.2, 40.1, 40.1, 32, 0, false},
    {"NVIDIA GeForce RTX 4070 Ti SUPER", "", 89, 15.5, 672, 88.2, 44.1, 44.1, 32, 0, false},
    {"NVIDIA GeForce RTX 4080", "RTX 4080 16GB", 89, 15.5, 717, 97.5, 48.7, 48.7, 32, 0, false},
    {"NVIDIA GeForce RTX 4080 SUPER", "", 89, 15.5, 736, 104.4, 52.2, 52.2, 32, 0, false},
    {"NVIDIA GeForce RTX 4090", "RTX 4090 24GB", 89, 23.5, 1008, 165.2, 82.6, 82.6, 32, 0, false},
    {"NVIDIA GeForce RTX 4090 D", "", 89, 23.5, 1008, 147, 73.5, 73.5, 32, 0, false},
    {"NVIDIA GeForce RTX 5050", "RTX 5050 8GB", 120, 7.5, 320, 26.3, 13.2, 13.2, 32, 0, false},
    {"NVIDIA GeForce RTX 5060", "RTX 5060 8GB", 120, 7.5, 448, 38.4, 19.2, 19.2, 32, 0, false},
    {"NVIDIA GeForce RTX 5060 Ti 8GB", "", 120, 7.5, 448, 47.4, 23.7, 23.7, 32, 0, false},
    {"NVIDIA GeForce RTX 5060 Ti 16GB", "", 120, 15.4, 448, 47.4, 23.7, 23.7, 32, 0, false},
    {"NVIDIA GeForce RTX 5070", "RTX 5070 12GB", 120, 11.5, 672, 61.7, 30.9, 30.9, 64, 0, false},
    {"NVIDIA GeForce RTX 5070 Ti", "RTX 5070 Ti 16GB", 120, 15.4, 896, 87.9, 43.9, 43.9, 64, 0, false},
    {"NVIDIA GeForce RTX 5080", "RTX 5080 16GB", 120, 15.4, 960, 112.6, 56.3, 56.3, 64, 0, false},
    {"NVIDIA GeForce RTX 5090", "RTX 5090 32GB", 120, 31.3, 1792, 209.5, 104.8, 104.8, 64, 0, false},
    {"NVIDIA GeForce RTX 5090 D", "", 120, 31.3, 1792, 209.5, 104.8, 104.8, 64, 0, false},
    {"NVIDIA GeForce RTX 3050 Laptop GPU", "", 86, 3.6, 192, 14.2, 7.1, 7.1, 16, 0, false},
    {"NVIDIA GeForce RTX 3050 Ti Laptop GPU", "", 86, 3.6, 192, 17.4, 8.7, 8.7, 16, 0, false},
    {"NVIDIA GeForce RTX 3060 Laptop GPU", "", 86, 5.6, 336, 26.2, 13.1, 13.1, 32, 0, false},
    {"NVIDIA GeForce RTX 3070 Laptop GPU", "", 86, 7.6, 448, 33.2, 16.6, 16.6, 32, 0, false},
    {"NVIDIA GeForce RTX 3070 Ti Laptop GPU", "", 86, 7.6, 448, 35, 17.5, 17.5, 32, 0, false},
    {"NVIDIA GeForce RTX 3080 Laptop GPU 8GB", "", 86, 7.6, 448, 42, 21, 21, 32, 0, false},
    {"NVIDIA GeForce RTX 3080 Laptop GPU 16GB", "", 86, 15.5, 448, 42, 21, 21, 32, 0, false},
    {"NVIDIA GeForce RTX 3080 Ti Laptop GPU", "", 86, 15.5, 512, 47.2, 23.6, 23.6, 32, 0, false},
    {"NVIDIA GeForce RTX 4050 Laptop GPU", "", 89, 5.6, 192, 24.2, 12.1, 12.1, 16, 0, false},
    {"NVIDIA GeForce RTX 4060 Laptop GPU", "", 89, 7.6, 256, 29.2, 14.6, 14.6, 16, 0, false},
    {"NVIDIA GeForce RTX 4070 Laptop GPU", "", 89, 7.6, 256, 40, 20, 20, 16, 0, false},
    {"NVIDIA GeForce RTX 4080 Laptop GPU", "", 89, 11.6, 432, 67.8, 33.9, 33.9, 32, 0, false},
    {"NVIDIA GeForce RTX 4090 Laptop GPU", "", 89, 15.5, 576, 79.4, 39.7, 39.7, 32, 0, false},
    {"NVIDIA GeForce RTX 5050 Laptop GPU", "", 120, 7.5, 384, 27.2, 13.6, 13.6, 32, 0, false},
    {"NVIDIA GeForce RTX 5060 Laptop GPU", "", 120, 7.5, 384, 33.2, 16.6, 16.6, 32, 0, false},
    {"NVIDIA GeForce RTX 5070 Laptop GPU", "", 120, 7.5, 384, 43.2, 21.6, 21.6, 32, 0, false},
    {"NVIDIA GeForce RTX 5070 Ti Laptop GPU", "", 120, 11.5, 672, 52.2, 26.1, 26.1, 64, 0, false},
    {"NVIDIA GeForce RTX 5080 Laptop GPU", "", 120, 15.4, 896, 70.2, 35.1, 35.1, 64, 0, false},
    {"NVIDIA GeForce RTX 5090 Laptop GPU", "", 120, 23.4, 896, 90.6, 45.3, 45.3, 64, 0, false},
    {"Quadro RTX 4000", "", 75, 7.6, 416, 57, 0, 7.1, 16, 0, false},
    {"Quadro RTX 5000", "", 75, 15.5, 448, 89.2, 0, 11.2, 16, 0, false},
    {"Quadro RTX 6000", "", 75, 23.4, 672, 130.5, 0, 16.3, 16, 0, false},
    {"Quadro RTX 8000", "", 75, 47.3, 672, 130.5, 0, 16.3, 16, 0, false},
    {"NVIDIA RTX A2000", "A2000 6GB", 86, 5.6, 288, 31.9, 16, 8, 32, 0, false},
    {"NVIDIA RTX A2000 12GB", "A2000 12GB", 86, 11.6, 288, 31.9, 16, 8, 32, 0, false},
    {"NVIDIA RTX A4000", "A4000", 86, 15.5, 448, 76.7, 38.3, 19.2, 32, 0, false},
    {"NVIDIA RTX A4500", "A4500", 86, 19.5, 640, 94.6, 47.3, 23.7, 32, 0, false},
    {"NVIDIA RTX A5000", "A5000", 86, 23.5, 768, 111.1, 55.6, 27.8, 32, 0, false},
    {"NVIDIA RTX A5500", "A5500", 86, 23.5, 768, 136.4, 68.2, 34.1, 32, 0, false},
    {"NVIDIA RTX A6000", "A6000", 86, 47.3, 768, 154.8, 77.4, 38.7, 32, 0, false},
    {"NVIDIA RTX 2000 Ada Generation", "RTX 2000 Ada", 89, 15.5, 224, 48, 24, 12, 16, 0, false},
    {"NVIDIA RTX 4000 Ada Generation", "RTX 4000 Ada", 89, 19.5, 360, 106.9, 53.4, 26.7, 32, 0, false},
    {"NVIDIA RTX 4500 Ada Generation", "RTX 4500 Ada", 89, 23.5, 432, 158.5, 79.3, 39.6, 32, 0, false},
    {"NVIDIA RTX 5000 Ada Generation", "RTX 5000 Ada", 89, 31.3, 576, 261.1, 130.6, 65.3, 32, 0, false},
    {"NVIDIA RTX 6000 Ada Generation", "RTX 6000 Ada", 89, 47.3, 960, 364.2, 182.1, 91.1, 32, 0, false},
    {"NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "RTX PRO 6000", 120, 94.9, 1792, 503.8, 251.9, 126, 64, 0,
     false},
    {"Tesla T4", "T4 16GB", 75, 14.5, 300, 65, 0, 8.1, 16, 0, false},
    {"NVIDIA A2", "A2 16GB", 86, 14.5, 200, 18, 9, 4.5, 16, 0, false},
    {"NVIDIA A10", "A10 24GB", 86, 22, 600, 125, 62.5, 31.2, 32, 0, false},
    {"NVIDIA A10G", "A10G 24GB", 86, 22, 600, 70, 35, 35, 32, 0, false},
    {"NVIDIA A30", "A30 24GB", 80, 23.4, 933, 165, 82, 10.3, 32, 0, false},
    {"NVIDIA A40", "A40 48GB", 86, 44.3, 696, 149.7, 74.8, 37.4, 32, 0, false},
    {"NVIDIA L4", "L4 24GB", 89, 22, 300, 121, 60, 30.3, 32, 0, false},
    {"NVIDIA L40", "L40 48GB", 89, 44.3, 864, 181, 90.5, 90.5, 32, 0, false},
    {"NVIDIA L40S", "L40S 48GB", 89, 44.3, 864, 362, 183, 91.6, 32, 0, false},
    {"NVIDIA A100-SXM4-40GB", "A100 40GB", 80, 39.3, 1555, 312, 156, 19.5, 32, 300, false},
    {"NVIDIA A100-SXM4-80GB", "A100 80GB", 80, 79.1, 2039, 312, 156, 19.5, 32, 300, false},
    {"NVIDIA A100-PCIE-40GB", "A100 PCIe 40GB", 80, 39.3, 1555, 312, 156, 19.5, 32, 0, false},
    {"NVIDIA A100 80GB PCIe", "A100 PCIe 80GB", 80, 79.1, 1935, 312, 156, 19.5, 32, 0, false},
    {"NVIDIA H100 PCIe", "H100 PCIe 80GB", 90, 79.1, 2000, 756, 378, 51, 64, 0, false},
    {"NVIDIA H100 NVL", "H100 NVL 94GB", 90, 93.1, 3900, 835, 417, 60, 64, 0, false},
    {"NVIDIA H100 80GB HBM3", "H100|H100 SXM|H100 SXM5|H100 80GB", 90, 79.1, 3350, 989, 494, 67, 64, 450, true},
    {"NVIDIA H200", "H200 SXM|H200 141GB", 90, 139.8, 4800, 989, 494, 67, 64, 450, true},
    {"NVIDIA B200", "B200 SXM|B200 180GB", 100, 178.3, 8000, 2250, 1125, 75, 64, 900, false},
    {.name = "NVIDIA GeForce GTX 1080 Ti", .aliases = "", .capability = 61},
    {.name = "Tesla P100-PCIE-16GB", .aliases = "P100", .capability = 60},
    {.name = "Tesla V100-SXM2-16GB", .aliases = "V100|V100 16GB|V100 32GB|V100-SXM2-32GB", .capability = 70},
};
enum { MODELS = sizeof models / sizeof *models };

/* The letters and digits of a name in lower case, without makers, brands and "GPU". */
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
    used = strlen(out);
    if (used > 3 && strcmp(out + used - 3, "gpu") == 0) out[used - 3] = '\0';
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

static void add_name(struct list *list, const struct snug_gpu_model *model, const char *name) {
    if (model->capability < SNUG_CUDA_LEAST_CAPABILITY || list->used >= list->size) return;
    list->used +=
        (size_t)snprintf(list->text + list->used, list->size - list->used, "%s%s", list->count++ ? ", " : "", name);
}

/* A name without makers: the list of all would be too long. */
static const char *short_name(const char *name) {
    static const char *const makers[] = {"NVIDIA ", "GeForce ", "Tesla "};
    for (size_t i = 0; i < sizeof makers / sizeof *makers; i++)
        if (strncmp(name, makers[i], strlen(makers[i])) == 0) name += strlen(makers[i]);
    return name;
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
            if (distance_to(&models[i], wanted, limit) == distance) add_name(&list, &models[i], models[i].name);
    const bool none = list.count == 0;
    for (size_t i = 0; none && i < MODELS; i++)
        if (!strstr(models[i].name, "Laptop")) add_name(&list, &models[i], short_name(models[i].name));
}
