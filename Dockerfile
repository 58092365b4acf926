# A container that keeps a project fresh and serves it:
#   docker build -t penstock .
#   docker run --init -v /srv/warehouse:/warehouse -p 8321:8321 penstock
FROM node:20-slim AS console
COPY console /build/console
RUN cd /build/console && npm ci --no-audit --no-fund && npm run build

FROM python:3.11-slim
RUN apt-get update && apt-get install -y --no-install-recommends default-jre-headless procps && rm -rf /var/lib/apt/lists/*
COPY . /build
COPY --from=console /build/src/penstock/service/console /build/src/penstock/service/console
# The versions of the lock file, and of these only what runs.
RUN sed -e 's/ *\\$//' -e '/^ *--hash/d' /build/requirements.lock > /tmp/pins \
    && pip install --no-cache-dir -c /tmp/pins "/build[serve,postgres]" \
    && rm -rf /build /tmp/pins && useradd --create-home penstock
USER penstock
WORKDIR /warehouse
EXPOSE 8321
ENTRYPOINT ["penstock"]
# Beyond its own machine it lets in only who has a token: docker run … penstock token add default
CMD ["serve", "--host", "0.0.0.0"]
