package dev.penstock.jms;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.TimeUnit;

/** A broker process of a test's own, on a port that stays the same over restarts, for tests that kill it. */
final class OwnBroker implements AutoCloseable {
    private static final long STARTS_WITHIN_SECONDS = 30;

    private final Path data;
    private final int port;
    private Process process;

    OwnBroker(Path data) throws IOException {
        this.data = data;
        try (ServerSocket free = new ServerSocket(0)) {
            this.port = free.getLocalPort();
        }
    }

    /** Starts the process; returns when its AMQP port answers. */
    void start() throws IOException {
        process = new ProcessBuilder(List.of(
                        TestBroker.command(), "broker", "--data", data.toString(), "--listen", "127.0.0.1:" + port, "--dev"))
                .redirectErrorStream(true)
                .redirectOutput(ProcessBuilder.Redirect.appendTo(data.resolveSibling("broker.log").toFile()))
                .start();
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(STARTS_WITHIN_SECONDS);
        while (!listening()) {
            if (hasExited() || System.nanoTime() > deadline) {
                throw new IOException("the broker did not start; see " + data.resolveSibling("broker.log"));
            }
        }
    }

    /** Waits a moment for the process to end, which paces the polling of its port. */
    private boolean hasExited() throws IOException {
        try {
            return process.waitFor(20, TimeUnit.MILLISECONDS);
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
            throw new IOException(interrupted);
        }
    }

    private boolean listening() {
        try (Socket probe = new Socket("127.0.0.1", port)) {
            return probe.isConnected();
        } catch (IOException refused) {
            return false;
        }
    }

    /** As kill -9 does. */
    void kill() {
        process.destroyForcibly();
        await();
    }

    /** As Kubernetes does: SIGTERM, then wait. */
    int terminate() {
        process.destroy();
        return await();
    }

    private int await() {
        try {
            return process.waitFor();
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
            throw new UncheckedIOException(new IOException(interrupted));
        }
    }

    String address() {
        return "127.0.0.1:" + port;
    }

    @Override
    public void close() {
        if (process != null && process.isAlive()) {
            kill();
        }
    }
}
