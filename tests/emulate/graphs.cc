// SPDX-License-Identifier: Apache-2.0
/*
 * Streams and graphs: work runs when it is submitted, in the order of submission, or is recorded while a stream is
 * captured. As on a GPU, a graph has the arguments of the time of capture, and the addresses that host functions got.
 */
#include <cstdlib>
#include <cstring>
#include <vector>

#include "cuda_bf16.h"
#include "cuda_runtime_api.h"

struct CUgraph_st {
    std::vector<std::function<void()>> work;
};
struct CUgraphExec_st : CUgraph_st {};

static CUgraph_st *captured;

void emulate_submit(const std::function<void()> &work) {
    if (captured)
        captured->work.push_back(work);
    else
        work();
}

extern "C" void emulate_submit_call(void (*call)(const void *), const void *arguments, size_t size) {
    const std::vector<uint8_t> copy((const uint8_t *)arguments, (const uint8_t *)arguments + size);
    emulate_submit([=] { call(copy.data()); });
}

extern "C" cudaError_t cudaLaunchHostFunc(cudaStream_t, cudaHostFn_t function, void *user) {
    emulate_submit([=] { function(user); });
    return cudaSuccess;
}
extern "C" cudaError_t cudaMemsetAsync(void *memory, int value, size_t size, cudaStream_t) {
    emulate_submit([=] { memset(memory, value, size); });
    return cudaSuccess;
}

extern "C" cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned) {
    *stream = (cudaStream_t)malloc(1);
    return *stream ? cudaSuccess : cudaErrorMemoryAllocation;
}
extern "C" cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int) {
    return cudaStreamCreateWithFlags(stream, flags);
}
extern "C" cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    free(stream);
    return cudaSuccess;
}
extern "C" cudaError_t cudaStreamBeginCapture(cudaStream_t, int) {
    captured = new CUgraph_st;
    return cudaSuccess;
}
extern "C" cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t *graph) {
    *graph = captured;
    captured = nullptr;
    return cudaSuccess;
}
extern "C" cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long) {
    *exec = new CUgraphExec_st{*graph};
    return cudaSuccess;
}
extern "C" cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t) {
    for (const auto &work : exec->work) work();
    return cudaSuccess;
}
extern "C" cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
    delete exec;
    return cudaSuccess;
}
extern "C" cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    delete graph;
    return cudaSuccess;
}
