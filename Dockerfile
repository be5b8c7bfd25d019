# SPDX-License-Identifier: Apache-2.0
# snug in a container, for the CPU:      docker build -t snug .
# with the CUDA backend:                 docker build -t snug:cuda --build-arg BASE=cuda .
# A training: docker run --rm -v "$PWD:/data" snug train --model_name_or_path … (with a GPU: docker run --gpus all …)
ARG BASE=cpu
ARG CUDA_VERSION=12.8.1

FROM debian:12 AS build-cpu
FROM nvidia/cuda:${CUDA_VERSION}-devel-ubuntu24.04 AS build-cuda

FROM build-${BASE} AS build
ARG BASE
RUN apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
        cmake dpkg-dev g++ gcc libcurl4-openssl-dev libdnnl-dev libjansson-dev libutf8proc-dev libxxhash-dev make \
        nettle-dev pkg-config zlib1g-dev && rm -rf /var/lib/apt/lists/*
COPY . /src
WORKDIR /src
# Only the container's own packages: the folder may hold builds of the host (.dockerignore).
RUN make deb BUILD=/build && mv /build/snug_*.deb /snug.deb

FROM debian:12-slim AS run-cpu
FROM nvidia/cuda:${CUDA_VERSION}-runtime-ubuntu24.04 AS run-cuda

FROM run-${BASE}
COPY --from=build /snug.deb /tmp/snug.deb
RUN apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends /tmp/snug.deb ca-certificates libcurl4 \
    && rm -rf /var/lib/apt/lists/* /tmp/snug.deb && snug --version \
    && useradd --create-home snug && install -d -o snug /data
USER snug
WORKDIR /data
ENTRYPOINT ["snug"]
CMD ["--help"]
