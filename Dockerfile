# larderd and larder in a small image, without a shell and without root. docs/operations.md tells how to use it.

FROM rust:1.88-slim-bookworm AS build
WORKDIR /usr/src/larder
COPY . .
# Dependencies are downloaded and compiled once; the mounts are no part of an image. Cargo takes a source that is older
# than a build for unchanged, so each build touches all of them: another clone gets its own programs.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/usr/src/larder/target,sharing=locked \
    find . -path ./target -prune -o -type f -exec touch {} + \
    && cargo build --release --locked --package larder-server --package larder-cli \
    && install -D --strip --target-directory=image/usr/bin target/release/larderd target/release/larder \
    && install -D --mode=644 --target-directory=image/usr/share/doc/larder LICENSE-MIT LICENSE-APACHE

# The C library and nothing else.
FROM gcr.io/distroless/cc-debian12:nonroot
LABEL org.opencontainers.image.title="larder" \
      org.opencontainers.image.description="A drop-in replacement for memcached" \
      org.opencontainers.image.licenses="MIT OR Apache-2.0"
COPY --from=build /usr/src/larder/image /
# nonroot, as a number, so that orchestrators can tell that it is not root.
USER 65532:65532
# Clients, and operators' HTTP if --admin-listen=*:9150 asks for it.
EXPOSE 11211 9150
STOPSIGNAL SIGTERM
# At another address, MEMCACHED_SERVERS tells where.
HEALTHCHECK --interval=10s --timeout=3s --start-period=5s CMD ["/usr/bin/larder", "ping"]
# Arguments of `docker run` are larderd's options, which are memcached's.
ENTRYPOINT ["/usr/bin/larderd", "--log-level=info"]
CMD ["-m", "64"]
