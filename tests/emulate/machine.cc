// SPDX-License-Identifier: Apache-2.0
/*
 * A GPU on one thread of the host: the threads of a block are fibers, which run until a barrier, a shuffle or another
 * instruction of the whole warp. Blocks run one after the other, in order. A thread that does not reach a barrier, a
 * lane that reads one that has exited, and a write past the dynamic shared memory end the program; shared memory is
 * filled with NaN when a block begins.
 */
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "cuda_fp16.h"
#include "cuda_runtime_api.h"

dim3 threadIdx, blockIdx, gridDim, blockDim;
uint8_t *emulated_shared;

// Saves the callee-saved registers, and continues on another stack.
extern "C" void emulate_switch(void **from, void *to);
asm(R"(
    .globl emulate_switch
emulate_switch:
    push %rbp
    push %rbx
    push %r12
    push %r13
    push %r14
    push %r15
    mov %rsp, (%rdi)
    mov %rsi, %rsp
    pop %r15
    pop %r14
    pop %r13
    pop %r12
    pop %rbx
    pop %rbp
    ret
)");

// Stacks do not begin at the same offset of a page: their tops would use the same few lines of the caches.
static const size_t STACK = (256 << 10) + 13 * 64, GUARD = 512;

struct barrier {
    uint32_t phase;
    uint16_t arrivals, missing;
};

enum state { RUNS, AT_WARP, AT_BLOCK, AT_BARRIER, LEFT };
union given {
    uint64_t words[4];
    float values[16];
};
struct fiber {
    void *stack_pointer;
    enum state state;
    dim3 thread;
    unsigned exchanges;    // that it began
    given shown[2];        // to the other lanes, in every other exchange: a lane may begin the next one early
    const barrier *awaits; // AT_BARRIER: until its phase is other than this one
    uint32_t phase;
};
static std::vector<fiber> fibers;
static size_t current, count, left;
static void *scheduler;
static const std::function<void()> *body;
static uint8_t *stacks;
static size_t stack_count;

[[noreturn]] static void die(const char *why) {
    fprintf(stderr, "emulated GPU: %s (block %u %u %u, thread %u %u)\n", why, blockIdx.x, blockIdx.y, blockIdx.z,
            threadIdx.x, threadIdx.y);
    abort();
}

// The next lane of the warp goes on, if it is ready; else the scheduler does.
static void pause_in(enum state state) {
    fiber &self = fibers[current];
    self.state = state;
    left += state == LEFT;
    const size_t next = current + 1;
    if (next % 32 && next < count && fibers[next].state == RUNS) {
        current = next;
        threadIdx = fibers[next].thread;
        emulate_switch(&self.stack_pointer, fibers[next].stack_pointer);
    } else {
        emulate_switch(&self.stack_pointer, scheduler);
    }
}

static void enter() {
    (*body)();
    pause_in(LEFT);
    abort();
}

// What the lanes of a warp show each other: each writes it here, and calls exchange().
static given &begin_exchange() {
    fiber &self = fibers[current];
    return self.shown[++self.exchanges % 2];
}
static void exchange() { pause_in(AT_WARP); }
static const given &given_by(size_t other) {
    const unsigned exchanges = fibers[current].exchanges;
    if (other >= count || fibers[other].exchanges < exchanges) die("an instruction reads a lane that has exited");
    return fibers[other].shown[exchanges % 2];
}

void __syncthreads() { pause_in(AT_BLOCK); }

uint64_t emulate_shuffle(uint64_t value, int mask) {
    const size_t self = current, other = (self & ~(size_t)31) | ((self & 31) ^ (size_t)mask);
    begin_exchange().words[0] = value;
    exchange();
    return given_by(other).words[0];
}

// Lane 8 m + r gives row r of matrix m; a lane gets elements 2 t and 2 t + 1 of row g, or of column g.
void emulate_ldmatrix(uint32_t (&registers)[4], const void *row, bool transposed) {
    const size_t self = current, warp = self & ~(size_t)31, lane = self & 31;
    if ((uintptr_t)row % 16) die("ldmatrix needs rows aligned to 16 bytes");
    begin_exchange().words[0] = (uint64_t)row;
    exchange();
    for (int m = 0; m < 4; m++) {
        uint32_t half[2];
        for (size_t k = 0; k < 2; k++) {
            const size_t r = transposed ? 2 * (lane % 4) + k : lane / 4, c = transposed ? lane / 4 : 2 * (lane % 4) + k;
            half[k] = ((const uint16_t *)given_by(warp + 8 * m + r).words[0])[c];
        }
        registers[m] = half[0] | half[1] << 16;
    }
    pause_in(AT_WARP); // all lanes have read before one goes on
}

static float half_of(uint64_t word, int half, bool fp16) {
    const uint16_t bits = (uint16_t)(half ? word >> 16 : word);
    return fp16 ? snug_f16_to_f32(bits) : snug_bf16_to_f32(bits);
}

// m16n8, of a depth of 8 words, as the PTX manual lays out its fragments: words hold PACKED elements, which value(word,
// number) gives, and finish(sum) rounds.
template <size_t PACKED, typename V, typename F>
static void multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, V value, F finish) {
    const size_t self = current, warp = self & ~(size_t)31, lane = self & 31;
    enum { RIGHT = 4 * PACKED };
    float *own = begin_exchange().values;
    for (size_t p = 0; p < PACKED; p++) {
        for (int i = 0; i < 4; i++) own[i * PACKED + p] = value(a[i], p);
        own[RIGHT + p] = value(b0, p);
        own[RIGHT + PACKED + p] = value(b1, p);
    }
    exchange();
    const float *left[4], *right[2][4]; // of rows g and g + 8; of two columns
    for (size_t word = 0; word < 4; word++) {
        left[word] = given_by(warp + lane / 4 * 4 + word).values;
        for (size_t j = 0; j < 2; j++)
            right[j][word] = given_by(warp + (2 * (lane % 4) + j) * 4 + word).values + RIGHT;
    }
    for (size_t i = 0; i < 4; i++) {
        double sum = c[i];
        for (size_t upper = 0; upper < 2; upper++)
            for (size_t word = 0; word < 4; word++)
                for (size_t p = 0; p < PACKED; p++)
                    sum += (double)left[word][(i / 2 + 2 * upper) * PACKED + p] *
                           right[i % 2][word][upper * PACKED + p];
        c[i] = finish(sum);
    }
}

void emulate_mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, bool fp16) {
    multiply<2>(
        c, a, b0, b1, [fp16](uint64_t word, size_t half) { return half_of(word, (int)half, fp16); },
        [](double sum) { return (float)sum; });
}

void emulate_half_mma(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t b) {
    emulate_mma(c, {a0, a1, 0, 0}, b, 0, true);
}

// An element of a tile in shared memory, of rows of 128 bytes, swizzled.
static uint16_t element_of(uint64_t tile, size_t row, size_t column) {
    const size_t first = (tile & 0x3fff) << 4, eight_rows = (tile >> 32 & 0x3fff) << 4;
    if (tile >> 62 != 1 || (tile >> 49 & 7)) die("a tile that is not swizzled by 128 bytes, or not aligned to 1024");
    const size_t place = first + row / 8 * eight_rows + row % 8 * 128 + 2 * column;
    return *(const uint16_t *)(emulated_shared + (place ^ (place >> 7 & 7) << 4));
}

// A lane's part of the m64n64k16 of four warps; left(half, k) is the left operand of its rows g and g + 8. It runs at
// once, so that missing waits are not noticed.
template <typename F> static void multiply_tile(float (&c)[8][4], F left, uint64_t tile, bool add, bool by_rows, bool fp16) {
    for (size_t n = 0; n < 8; n++)
        for (size_t i = 0; i < 4; i++) {
            const size_t column = 8 * n + 2 * (current % 4) + i % 2;
            double sum = add ? c[n][i] : 0;
            for (size_t k = 0; k < 16; k++)
                sum += (double)left(i / 2, k) *
                       half_of(by_rows ? element_of(tile, k, column) : element_of(tile, column, k), 0, fp16);
            c[n][i] = (float)sum;
        }
    pause_in(AT_WARP);
}

void emulate_multiply_tile(float (&c)[8][4], const uint32_t (&a)[4], uint64_t tile, bool add, bool by_rows, bool fp16) {
    const size_t quad = current & ~(size_t)3;
    given &own = begin_exchange();
    for (int i = 0; i < 4; i++) own.words[i] = a[i];
    exchange();
    const auto left = [&](size_t half, size_t k) {
        return half_of(given_by(quad + k % 8 / 2).words[half + k / 8 * 2], k % 2, fp16);
    };
    multiply_tile(c, left, tile, add, by_rows, fp16);
}

void emulate_multiply_tiles(float (&c)[8][4], uint64_t left, uint64_t tile, bool add, bool left_by_rows, bool by_rows,
                            bool fp16) {
    const size_t first = current / 32 % 4 * 16 + current % 32 / 4;
    const auto from_left = [&](size_t half, size_t k) {
        const size_t row = first + 8 * half;
        return half_of(left_by_rows ? element_of(left, k, row) : element_of(left, row, k), 0, fp16);
    };
    multiply_tile(c, from_left, tile, add, by_rows, fp16);
}

// To 10 bits of mantissa, ties away from zero; infinities and NaNs are kept.
uint32_t emulate_round_to_tf32(float value) {
    const uint32_t bits = __float_as_uint(value);
    return (std::isfinite(value) ? bits + 0x1000 : bits) & 0xffffe000;
}

// The last 13 bits of an operand are ignored.
static float tf32_of(uint64_t word) { return __uint_as_float((uint32_t)word & 0xffffe000); }

// Truncated to fp32, as by tensor cores.
static float cut_off(double sum) {
    const float nearest = (float)sum;
    return std::fabs((double)nearest) > std::fabs(sum) ? std::nextafter(nearest, 0.0f) : nearest;
}

void emulate_mma_tf32(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    multiply<1>(c, a, b0, b1, [](uint64_t word, size_t) { return tf32_of(word); }, cut_off);
}

static void load_shared(uint32_t *to, const void *from, size_t size) {
    if ((uintptr_t)from % size) die("a load of several words needs alignment to its size");
    memcpy(to, from, size);
}
void emulate_load(uint32_t (&r)[2], const void *from) { load_shared(r, from, 8); }
void emulate_load(uint32_t (&r)[4], const void *from) { load_shared(r, from, 16); }

void emulate_copy(void *to, const void *from, size_t size, bool there) {
    if ((uintptr_t)to % size || (uintptr_t)from % size) die("cp.async needs alignment to its size");
    if (there)
        memcpy(to, from, size);
    else
        memset(to, 0, size);
}

// The inverse of ldmatrix.
void emulate_stmatrix(void *row, const uint32_t (&registers)[4]) {
    const size_t self = current, warp = self & ~(size_t)31, lane = self & 31;
    if ((uintptr_t)row % 16) die("stmatrix needs rows aligned to 16 bytes");
    begin_exchange().words[0] = (uint64_t)row;
    exchange();
    for (int m = 0; m < 4; m++)
        memcpy((uint8_t *)given_by(warp + 8 * m + lane / 4).words[0] + 4 * (lane % 4), &registers[m], 4);
}

void __syncwarp() { pause_in(AT_WARP); }

void emulate_make_barrier(void *barrier, int arrivals) {
    *(struct barrier *)barrier = {0, (uint16_t)arrivals, (uint16_t)arrivals};
}
void emulate_arrive(void *barrier) {
    struct barrier *b = (struct barrier *)barrier;
    if (b->arrivals == 0 || b->arrivals == 0xffff) die("no such barrier");
    if (--b->missing) return;
    b->phase++;
    b->missing = b->arrivals;
}
static bool passed(const fiber &f) { return (f.awaits->phase & 1) != f.phase; }
void emulate_wait(void *barrier, uint32_t phase) {
    fibers[current].awaits = (const struct barrier *)barrier;
    fibers[current].phase = phase & 1;
    if (!passed(fibers[current])) pause_in(AT_BARRIER);
}

// Runs all threads of first … end - 1 that are ready; returns whether there were any.
static bool run_some(size_t first, size_t end) {
    bool any = false;
    for (size_t i = first; i < end; i++) {
        if (fibers[i].state == AT_BARRIER && passed(fibers[i])) fibers[i].state = RUNS;
        if (fibers[i].state != RUNS) continue;
        any = true;
        current = i;
        threadIdx = fibers[i].thread;
        emulate_switch(&scheduler, fibers[i].stack_pointer);
        i = current; // the last one that ran
    }
    return any;
}

// Resumes the threads that wait in state, once all that have not exited do.
static bool release(size_t first, size_t end, enum state state) {
    bool some = false;
    for (size_t i = first; i < end; i++) {
        if (fibers[i].state != state && fibers[i].state != LEFT) return false;
        some |= fibers[i].state == state;
    }
    for (size_t i = first; some && i < end; i++)
        if (fibers[i].state == state) fibers[i].state = RUNS;
    return some;
}

static void run_block() {
    left = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t *top = (uint64_t *)(stacks + (i + 1) * STACK - 64);
        *--top = 0; // as after a call: the stack is aligned to 16 bytes below a return address
        *--top = (uint64_t)(void *)enter;
        for (int saved = 0; saved < 6; saved++) *--top = 0;
        fibers[i] = {};
        fibers[i].stack_pointer = top;
        fibers[i].thread = dim3((unsigned)i % blockDim.x, (unsigned)i / blockDim.x % blockDim.y,
                                (unsigned)i / blockDim.x / blockDim.y);
    }
    while (left < count) {
        bool moved = false;
        for (size_t warp = 0; warp < count; warp += 32) {
            const size_t end = warp + 32 < count ? warp + 32 : count;
            while (run_some(warp, end) || release(warp, end, AT_WARP)) moved = true;
        }
        if (!release(0, count, AT_BLOCK) && !moved) die("a barrier that not all threads reach");
    }
}

void emulate_launch(dim3 grid, dim3 block, size_t shared, const std::function<void()> &kernel) {
    count = (size_t)block.x * block.y * block.z;
    if (!grid.x || !grid.y || !grid.z || grid.y > 65535 || grid.z > 65535 || !count || count > 1024)
        die("no such grid or block");
    int most;
    cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0);
    if (shared > (size_t)most) die("more shared memory than a block may have");
    if (stack_count < count) {
        free(stacks);
        stacks = (uint8_t *)aligned_alloc(64, count * STACK);
        stack_count = count;
    }
    fibers.resize(count);
    body = &kernel;
    gridDim = grid;
    blockDim = block;
    const size_t size = (shared + GUARD - 1) / GUARD * GUARD + GUARD;
    emulated_shared = (uint8_t *)aligned_alloc(GUARD, size);
    for (unsigned z = 0; z < grid.z; z++)
        for (unsigned y = 0; y < grid.y; y++)
            for (unsigned x = 0; x < grid.x; x++) {
                blockIdx = dim3(x, y, z);
                memset(emulated_shared, 0xff, shared);
                memset(emulated_shared + shared, 0x5a, size - shared);
                run_block();
                for (size_t i = shared; i < size; i++)
                    if (emulated_shared[i] != 0x5a) die("a write past the dynamic shared memory");
            }
    free(emulated_shared);
}
