# The gateway. `docker build -t adacompute .`, then e.g.
#   docker run -p 127.0.0.1:8080:8080 -v state:/data -v ./keys.toml:/keys.toml:ro \
#     adacompute --upstream http://HOST:PORT/v1 --keys /keys.toml --budget 2
# It listens at every address of the container, so it refuses to start without keys.
# `docker build --build-context wheel=dist .` takes the wheel that `make release` has left in dist/.

FROM python:3.12-slim AS source
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
RUN pip wheel --no-cache-dir --disable-pip-version-check --no-deps --wheel-dir /dist .

FROM scratch AS wheel
COPY --from=source /dist/ /

FROM python:3.12-slim AS build
WORKDIR /build
RUN python -m venv /opt/adacompute
# the part of requirements.lock that the gateway needs; a change of the source leaves this layer as it is
COPY requirements-gateway.lock ./
RUN /opt/adacompute/bin/pip install --no-cache-dir --disable-pip-version-check \
        --require-hashes --no-deps -r requirements-gateway.lock
COPY --from=wheel /*.whl /wheel/
RUN /opt/adacompute/bin/pip install --no-cache-dir --disable-pip-version-check --no-deps /wheel/*.whl

FROM python:3.12-slim
RUN useradd --uid 10001 --user-group --no-create-home --shell /usr/sbin/nologin gateway \
    && install --directory --owner=gateway --group=gateway --mode=0700 /data
COPY --from=build /opt/adacompute /opt/adacompute
ENV PATH=/opt/adacompute/bin:$PATH PYTHONUNBUFFERED=1
USER 10001
# the state lies here: what is spent must outlive the container
WORKDIR /data
VOLUME /data
EXPOSE 8080
STOPSIGNAL SIGTERM
# with --tls-cert, or another --port, give a health check of your own
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8080/healthz', timeout=4)"]
ENTRYPOINT ["adacompute", "serve", "--host", "0.0.0.0", "--port", "8080"]
