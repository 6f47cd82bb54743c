# headstart in a container, on CPUs: two stages, no root, weights and kernels in a volume.
#
#   docker build -t headstart .
#   docker run --rm -p 127.0.0.1:8080:8080 -v headstart-cache:/cache headstart
#
# In a container the server listens on all of the container's addresses, without a key: publish the
# port on 127.0.0.1, or set keys (docs/security.md). Linted by hadolint (tests/test_habits.py).

FROM python:3.12-slim-bookworm AS build

RUN python -m venv /opt/headstart
ENV PATH=/opt/headstart/bin:$PATH

WORKDIR /src
COPY . .
# PyTorch's build for CPUs, or PyPI's with CUDA (3 GB) if its index cannot be used. For --device cuda:
# `--build-arg TORCH=cuda`. TORCH_INDEX names another index that has builds for CPUs.
ARG TORCH=auto
ARG TORCH_INDEX=
ENV PIP_NO_CACHE_DIR=1
# Versions are pinned in constraints.txt.
# hadolint ignore=DL3013
RUN python -m headstart.setup_torch "$TORCH" --index "$TORCH_INDEX" torch \
 && pip install -c constraints.txt ".[voice,otel]" \
 && pip uninstall --yes uv


FROM python:3.12-slim-bookworm

# The kernels are compiled at the first start, for the processor they run on: so gcc is needed here.
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install --yes --no-install-recommends gcc libc6-dev \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --create-home --uid 10001 headstart \
 && install --directory --owner=headstart /cache

COPY --from=build /opt/headstart /opt/headstart
COPY web-demo /opt/headstart/web-demo

ENV PATH=/opt/headstart/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    XDG_CACHE_HOME=/cache \
    HEADSTART_WEB_DIR=/opt/headstart/web-demo \
    HEADSTART_HOST=0.0.0.0 \
    HEADSTART_PORT=8080 \
    HEADSTART_MODEL=small

USER 10001
WORKDIR /home/headstart
VOLUME /cache
EXPOSE 8080

# The first start fetches weights: 0.6 GB. `/healthz` is 503 until the engine is ready.
HEALTHCHECK --interval=10s --timeout=5s --start-period=10m --retries=3 \
    CMD ["python", "-c", "import os, urllib.request as u; u.urlopen('http://127.0.0.1:' + os.environ['HEADSTART_PORT'] + '/healthz', timeout=4)"]

ENTRYPOINT ["headstart"]
CMD ["serve"]
