# The image of Hearth: slim, non-root, no build tools in the final stage.
ARG BASE_IMAGE=python:3.13-slim

FROM ${BASE_IMAGE} AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY hearth hearth
RUN python3 -m venv /opt/hearth \
 && /opt/hearth/bin/pip install --no-cache-dir --no-compile ".[uvloop]" \
 && /opt/hearth/bin/pip uninstall --yes --quiet pip

FROM ${BASE_IMAGE}
COPY --from=build /opt/hearth /opt/hearth
ENV PATH=/opt/hearth/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 65532:65532
EXPOSE 8080 8081 9090
ENTRYPOINT ["hearth"]
CMD ["run"]
