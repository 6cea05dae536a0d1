# The image of Hearth: slim, non-root, no pip and no build tools in the final stage.
ARG BASE_IMAGE=python:3.13-slim

FROM ${BASE_IMAGE} AS build
# Where packages come from, for those behind a mirror; pip reads these.
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
ARG PIP_CERT
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore PYTHONDONTWRITEBYTECODE=1
WORKDIR /src
COPY requirements.lock ./
COPY scripts/image_tree.py scripts/
COPY hearth hearth
RUN python3 scripts/image_tree.py

FROM ${BASE_IMAGE}
COPY --from=build /opt/standard-library /
COPY --from=build /opt/hearth /opt/hearth
COPY LICENSE /opt/hearth/LICENSE
# The root file system may be read-only; everything is compiled already.
ENV PATH=/opt/hearth/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 65532:65532
WORKDIR /tmp
EXPOSE 8080 8081 9090 9443
ENTRYPOINT ["hearth"]
CMD ["run"]
