# SPDX-License-Identifier: Apache-2.0
# snug in a container, for the CPU:      docker build -t snug .
# with the CUDA backend:                 docker build -t snug:cuda --build-arg BUILD_IMAGE=nvidia/cuda:12.8.1-devel-ubuntu24.04 \
#                                            --build-arg RUN_IMAGE=nvidia/cuda:12.8.1-runtime-ubuntu24.04 .
# A training: docker run --rm --user "$(id -u):$(id -g)" -v "$PWD:/data" snug train --model_name_or_path … (with a GPU: docker run
# --gpus all …). Models of snug pull and caches are kept in .cache of that folder.
# The images are arguments of their own, not stages to choose from: builders without BuildKit (Docker and podman of Debian 12)
# build or pull every stage, or do not find one whose name comes from an argument.
ARG BUILD_IMAGE=debian:12
ARG RUN_IMAGE=debian:12-slim

FROM ${BUILD_IMAGE} AS build
RUN apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
        cmake dpkg-dev g++ gcc libcurl4-openssl-dev libdnnl-dev libjansson-dev libutf8proc-dev libxxhash-dev make ninja-build \
        nettle-dev pkg-config zlib1g-dev && rm -rf /var/lib/apt/lists/*
COPY . /src
WORKDIR /src
# Only the container's own packages: the folder may hold builds of the host (.dockerignore).
RUN make deb BUILD=/build && mv /build/snug_*.deb /snug.deb

FROM ${RUN_IMAGE}
COPY --from=build /snug.deb /tmp/snug.deb
RUN apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends /tmp/snug.deb ca-certificates libcurl4 \
    && rm -rf /var/lib/apt/lists/* /tmp/snug.deb && snug --version \
    && useradd --home-dir /data --no-create-home snug && install -d -o snug /data
USER snug
# Also for the user of docker run --user, who has no home.
ENV HOME=/data
WORKDIR /data
ENTRYPOINT ["snug"]
CMD ["--help"]
