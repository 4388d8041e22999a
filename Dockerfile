# loadline in a container. It measures the host, so it must see the host:
#
#   docker run -d --name loadline --net=host --pid=host \
#     -v /:/host/root:ro,rslave -v /proc:/host/proc:ro -v /sys:/host/sys:ro \
#     -v loadline:/var/lib/loadline loadline
#
# --net=host         links and TCP counters are those of a network namespace
# --pid=host         a worker that is stuck in the kernel can't be killed. Were the daemon process 1 of
#                    its own PID namespace, the kernel would not let it end before that worker: the
#                    container could neither be stopped nor started again
# rslave             mounts that come later appear, too
# -v loadline:...    the state, and the file that the default probes read and write: the disk under
#                    this volume is the one that is probed. A directory in its place must belong to
#                    uid 65532. Other disks: mount a directory of theirs and name it as a target
#
# Docker's default seccomp profile refuses io_uring (moby 25 and later): probes then fall back to
# another engine, and each result says which. A profile that allows the io_uring calls lifts that.
#
# No HEALTHCHECK: the image has no shell, and the binary no command for it. Ask
# http://HOST:9847/-/healthy from outside.

FROM rust:1.95-bookworm AS builder
WORKDIR /src
COPY . .
# For --version and loadline_build_info: the context has no .git to ask.
ARG LOADLINE_REVISION=unknown
ENV LOADLINE_REVISION=${LOADLINE_REVISION}
RUN cargo build --release --locked --bin loadline \
 && target/release/loadline --version \
 && install -d -m 0750 /state

# The glibc of the builder's Debian and libgcc, no shell, no package manager. Not a static binary on
# an empty image: names in `--listen` are looked up by the C library, which loads modules for that.
FROM gcr.io/distroless/cc-debian12:nonroot
ARG LOADLINE_REVISION=unknown
LABEL org.opencontainers.image.title="loadline" \
      org.opencontainers.image.description="Continuous performance monitor for Linux hosts" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.revision="${LOADLINE_REVISION}"
COPY --from=builder /src/target/release/loadline /usr/local/bin/loadline
COPY --from=builder --chown=65532:65532 /state /var/lib/loadline
USER 65532:65532
ENV STATE_DIRECTORY=/var/lib/loadline
VOLUME ["/var/lib/loadline"]
EXPOSE 9847
ENTRYPOINT ["/usr/local/bin/loadline"]
CMD ["serve", "--path.procfs=/host/proc", "--path.sysfs=/host/sys", "--path.rootfs=/host/root"]
