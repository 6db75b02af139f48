# The service and the proxy: `docker build -t swerve .`; docs/deploy.md says how to run it.
ARG PYTHON=3.11-slim-bookworm

FROM python:${PYTHON} AS build
SHELL ["/bin/bash", "-euo", "pipefail", "-c"]
WORKDIR /src
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
COPY requirements/build.txt requirements/service.txt requirements/
# --no-compile: byte code is made below, when the files have their final times
RUN python -m venv /opt/build \
    && /opt/build/bin/pip install --require-hashes -r requirements/build.txt \
    && python -m venv /opt/swerve \
    && /opt/swerve/bin/pip install --no-compile --require-hashes -r requirements/service.txt
COPY pyproject.toml README.md LICENSE ./
COPY src src
COPY clients/python clients/python
RUN /opt/build/bin/pip wheel --no-deps --no-build-isolation --wheel-dir dist . ./clients/python \
    && /opt/swerve/bin/pip install --no-compile --no-deps dist/*.whl
# Compiled code is cached with the times of its sources, and a registry may cut times to whole seconds.
RUN find /opt/swerve -exec touch --no-dereference --date=@1700000000 {} + \
    && /opt/swerve/bin/python -m compileall -q /opt/swerve/lib
# Code for every x86-64 and ARM processor, the same at build and run time: see docs/deploy.md for what it costs.
ENV NUMBA_CPU_NAME=generic
COPY deploy/container/compile.py deploy/container/
RUN SWERVE_CACHE_DIR=/opt/swerve/compiled /opt/swerve/bin/python deploy/container/compile.py

FROM python:${PYTHON}
RUN groupadd --gid 10001 swerve \
    && useradd --uid 10001 --gid swerve --no-create-home --home-dir /var/lib/swerve --shell /usr/sbin/nologin swerve \
    && install -d -o swerve -g swerve -m 0700 /var/lib/swerve /var/cache/swerve
COPY --from=build /opt/swerve /opt/swerve
COPY --chmod=0755 deploy/container/start /usr/local/bin/swerve-start
ENV PATH=/opt/swerve/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONUNBUFFERED=1 \
    NUMBA_CPU_NAME=generic \
    SWERVE_CACHE_DIR=/var/cache/swerve \
    SWERVE__SERVER__HOST=0.0.0.0 \
    SWERVE__STORE__URL=sqlite:////var/lib/swerve/swerve.db
USER 10001:10001
WORKDIR /var/lib/swerve
# The store and its secrets. /var/cache/swerve may be lost: it is filled again at the start.
VOLUME /var/lib/swerve
EXPOSE 8350 9280
# SIGTERM: requests are answered and everything is written, within server.drain_seconds
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request as u; u.urlopen('http://127.0.0.1:' + os.environ.get('SWERVE__SERVER__PORT', '8350') + '/healthz', timeout=2)"]
ENTRYPOINT ["swerve-start"]
CMD ["serve"]
